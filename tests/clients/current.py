"""The current Python client (PyPI `mcp` 2.x) walks docent: list, search, describe, run, call.

Usage: current.py URL|stdio:PROGRAM,ARG,… MODE   (MODE: auto, legacy or a protocol version)
Prints one JSON object of what it saw; tests/it/clients.rs compares it.
"""

import asyncio
import json
import sys

from mcp import Client, StdioServerParameters


async def every_tool(client):
    tools, cursor, pages = [], None, 0
    while True:
        page = await client.list_tools(cursor=cursor)
        pages += 1
        tools += [tool.name for tool in page.tools]
        cursor = page.next_cursor
        if cursor is None:
            return tools, pages


def text(result):
    return "".join(block.text for block in result.content if block.type == "text")


async def main(target, mode):
    if target.startswith("stdio:"):
        program, *args = target.removeprefix("stdio:").split(",")
        server = StdioServerParameters(command=program, args=args)
    else:
        server = target
    async with Client(server, mode=mode) as client:
        tools, pages = await every_tool(client)
        found = await client.call_tool("docent_search_tools", {"query": "echo a message back", "limit": 5})
        described = await client.call_tool("docent_describe_tool", {"tool": "everything.echo"})
        run = await client.call_tool("docent_run_tool", {"tool": "everything.echo", "arguments": {"message": "through run"}})
        direct = await client.call_tool("everything_echo", {"message": "direct"})
        hidden = await client.call_tool("docent_describe_tool", {"tool": "everything.no_such_tool"})
        print(json.dumps({
            "protocol": client.protocol_version,
            "server": client.server_info.name,
            "instructions": bool(client.instructions),
            "tools": tools,
            "pages": pages,
            "found": [tool["id"] for tool in found.structured_content["tools"]],
            "search_text_is_structured": json.loads(text(found)) == found.structured_content,
            "described": described.structured_content["id"],
            "described_schema": described.structured_content["input_schema"],
            "run": text(run),
            "direct": text(direct),
            "hidden_is_error": hidden.is_error,
        }))


asyncio.run(main(*sys.argv[1:3]))
