//! Arguments to an upstream request, an upstream reply to a small result under a schema.
