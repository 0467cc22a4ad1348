//! The MCP wire: JSON-RPC, both eras. The only module that knows it.
