"""An old Python client (PyPI `mcp` 1.12) walks docent over the session wire: list, search, describe, run, call.

Usage: old.py URL
Prints one JSON object of what it saw; tests/it/clients.rs compares it.
"""

import asyncio
import json
import sys

from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client


def text(result):
    return "".join(block.text for block in result.content if block.type == "text")


async def main(url):
    async with streamablehttp_client(url) as (read, write, _), ClientSession(read, write) as session:
        info = await session.initialize()
        tools, cursor, pages = [], None, 0
        while True:
            page = await session.list_tools(cursor)
            pages += 1
            tools += [tool.name for tool in page.tools]
            cursor = page.nextCursor
            if cursor is None:
                break
        found = await session.call_tool("docent_search_tools", {"query": "echo a message back", "limit": 5})
        described = await session.call_tool("docent_describe_tool", {"tool": "everything.echo"})
        run = await session.call_tool("docent_run_tool", {"tool": "everything.echo", "arguments": {"message": "through run"}})
        direct = await session.call_tool("everything_echo", {"message": "direct"})
        hidden = await session.call_tool("docent_describe_tool", {"tool": "everything.no_such_tool"})
        print(json.dumps({
            "protocol": info.protocolVersion,
            "server": info.serverInfo.name,
            "instructions": bool(info.instructions),
            "tools": tools,
            "pages": pages,
            "found": [tool["id"] for tool in found.structuredContent["tools"]],
            "search_text_is_structured": json.loads(text(found)) == found.structuredContent,
            "described": described.structuredContent["id"],
            "described_schema": described.structuredContent["input_schema"],
            "run": text(run),
            "direct": text(direct),
            "hidden_is_error": hidden.isError,
        }))


asyncio.run(main(sys.argv[1]))
