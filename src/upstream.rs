//! Adapters to what runs the tools: HTTP and OpenAPI services, MCP servers, local commands, catalogs.
