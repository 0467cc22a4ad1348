//! The use cases, without any wire: list, search, describe, call.
