//! From the files of a home to settings, every mistake told at once.
