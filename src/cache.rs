//! Rosters and replays. The only module that knows moka.
