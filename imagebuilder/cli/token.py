# SPDX-License-Identifier: Apache-2.0
"""Tokens for those who act on the web page and in its API; what acts and reads for the page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from imagebuilder.cli.context import Call, argument, option, print_answer, print_list
from imagebuilder.cli.names import AsJson, TreeOption
from imagebuilder.tree import DEFAULT_TREE
from imagebuilder.web.roles import Role

token_app = typer.Typer(
    name="token",
    help="Add, list and remove tokens for users of the web page and its API.",
    no_args_is_help=True,
)
System = Annotated[
    bool, option("Use the tokens of the installed units, in /etc/imagebuilder.", "--system")
]
TokenName = Annotated[str, argument("Name of the token's owner.")]


def tokens_of(context: Call, *, system: bool = False) -> Path:
    from imagebuilder.web.tokens import find_token_file

    return find_token_file(context.obj.settings, os.environ, system=system)


@token_app.command("add")
def token_add(
    context: Call,
    name: TokenName,
    role: Annotated[
        Role,
        option("power: up, down, restart; release: promote, rollback, roll-outs; admin: both."),
    ],
    system: System = False,
    json: AsJson = False,
) -> None:
    """Create a token and print it. Only its SHA-256 is stored, so it is never shown again.

    Example: imagebuilder token add ada --role power --system
    """
    from imagebuilder.web.tokens import add_token

    path = tokens_of(context, system=system)
    secret = add_token(path, name, role)
    context.obj.ui.note(
        f"made a token for {name}; it is not shown again, and {path} has only its SHA-256"
    )
    print_answer({"name": name, "role": role, "token": secret}, secret, json=json)


@token_app.command("list")
def token_list(context: Call, system: System = False, json: AsJson = False) -> None:
    """List the names and roles of tokens.

    Example: imagebuilder token list
    """
    from imagebuilder.web.tokens import load_tokens

    found = load_tokens(tokens_of(context, system=system))
    empty = "no tokens: the web page only reads"
    print_list(found, ("name", "role", "added"), empty=empty, json=json)


@token_app.command("remove")
def token_remove(context: Call, name: TokenName, system: System = False) -> None:
    """Remove a token. It stops working at once, also for users who are logged in.

    Example: imagebuilder token remove ada
    """
    from imagebuilder.web.tokens import remove_token

    remove_token(tokens_of(context, system=system), name)
    context.obj.ui.note(f"removed the token of {name}; actions that it started continue")


def act(context: Call, tree: TreeOption = DEFAULT_TREE) -> None:
    """Do one action that the web page asks for: a request on stdin, one line of answer on stdout.

    Example: imagebuilder act
    """
    from imagebuilder.publish.find import find_tree
    from imagebuilder.web.act import ActCaller
    from imagebuilder.web.act import act as act_for

    raise typer.Exit(act_for(find_tree(tree), tokens_of(context), ActCaller(), os.environ))


def read(tree: TreeOption = DEFAULT_TREE) -> None:
    """Answer what the web page may show and not read: a line on stdin, a line on stdout.

    Example: imagebuilder read
    """
    from imagebuilder.publish.find import find_tree
    from imagebuilder.web.read import answer_questions

    raise typer.Exit(answer_questions(find_tree(tree)))
