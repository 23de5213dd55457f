"""`wlgen new`: a commented spec to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from wlgen.commands._answer import AsJson, Quiet, shape_of, show


def command(  # noqa: PLR0917 (typer reads options as arguments)
    name: Annotated[str, typer.Argument(help="The set's name; the spec is NAME.yaml in this folder.")],
    source: Annotated[
        str | None, typer.Option("--from", metavar="SPEC", help="Start from a shipped spec, or from a file.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Folder or hub id of the model's tokenizer and template."),
    ] = None,
    engine: Annotated[str | None, typer.Option(help="The engine under test: sglang, vllm, ...")] = None,
    rule: Annotated[str | None, typer.Option(help="A named cache rule, in place of --engine.")] = None,
    page_size: Annotated[int, typer.Option(min=1, help="The server's page or block, with --engine.")] = 128,
    ranks: Annotated[int | None, typer.Option(min=1, help="Data-parallel ranks of the server.")] = None,
    hit: Annotated[
        float | None, typer.Option(min=0, max=1, help="Least cached ratio of each request; 0: a zero set.")
    ] = None,
    prompt_len: Annotated[
        int | None, typer.Option(min=1, help="Tokens of a prompt, the chat framing included.")
    ] = None,
    output_len: Annotated[int | None, typer.Option(min=1, help="Tokens that the server generates.")] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="Formal rows of all ranks.")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write NAME.yaml, a commented spec to start from."""
    import json

    from wlgen.build.ready import load_encoding
    from wlgen.errors import error
    from wlgen.spec import file as spec_file
    from wlgen.spec import starter

    path = Path(f"{name}.yaml")
    if path.exists():
        raise error(str(path), expected="no such file yet", found="one", remedy="Give another name.")
    if rule and engine:
        raise error("--rule", expected="--rule or --engine, not both", found=f"{rule} and {engine}")
    written = {
        "encoding": f"{{path: {json.dumps(model)}}}" if model else None,
        "cache": f"{{engine: {engine}, page_size: {page_size}}}" if engine else None,
        "dp_ranks": ranks,
        "output_len": output_len,
        "cached": None if hit is None else f"{{min_ratio: {hit:g}}}" if hit else "{max_tokens: 0}",
        "formal": f"{{total: {rows}}}" if rows else None,
    }
    written["cache"] = f"{{rule: {rule}}}" if rule else written["cache"]
    values = {key: str(value) for key, value in written.items() if value is not None}
    text = starter.new_text(name, starter.source_text(source) if source else None, values)
    text = starter.without_seeds(text) if hit == 0 else text
    if prompt_len is not None:
        framing = load_encoding(spec_file.parse(text, str(path))).frame(("user",)).tokens
        text = starter.with_value(text, "body_len", str(max(0, prompt_len - framing)))
    spec_file.parse(text, str(path))
    path.write_text(text, encoding="utf-8")
    if as_json:
        show("new", {"spec": path})
    elif not quiet:
        typer.echo(f"{path} is written. See what it will give: wlgen plan {path}")


def shape() -> Any:
    """Return the model of what `wlgen new --json` prints: the file that it wrote."""
    return shape_of("new", spec=str)
