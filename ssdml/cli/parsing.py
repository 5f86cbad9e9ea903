"""Parsing of commands: an option is given once, and a command can be told once more."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from ssdml.cli.options import naming_standard_output

WORDS = "ssdml.words"  # of the command, in the context
HOME = re.compile(r"^(--[\w-]+=|)~(?=/)")
SEVERAL = {"dataset": "`ssdml study A B --out FOLDER` compares on several data sets."}


class Command(TyperCommand):
    """A command that refuses empty values, and options given twice, of which the last would count.

    It finds the home folder in quoted paths, and after "=", where shells do not.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of the command line, and keep them for :func:`repeated`."""
        args = [HOME.sub(lambda found: f"{found[1]}{Path.home()}", word) for word in args]
        ctx.meta[WORDS] = list(args)
        if not ctx.resilient_parsing:
            values, _, given = self.make_parser(ctx).parse_args(list(args))
            for option, n in Counter(given).items():
                if n > 1 and not is_repeatable(option):
                    ctx.fail(
                        f"{option.opts[0]} must be given once; got it {n} times. {_way_out(option)}"
                    )
                if "" in _each(values[option.name]):
                    way_out = "Name one." if option.required else "Leave it out for the default."
                    ctx.fail(f"{_name(option)} must not be empty; got ''. {way_out}")
        with naming_standard_output():  # it may get the help
            return super().parse_args(ctx, args)


def is_repeatable(option: Any) -> bool:
    """Whether a parameter may occur more than once: all flags, and those that collect values."""
    return bool(
        option.param_type_name != "option" or option.multiple or option.is_flag or option.count
    )


def _each(value: Any) -> Any:
    return value if isinstance(value, tuple | list) else (value,)


def _name(option: Any) -> Any:
    return option.opts[0] if option.param_type_name == "option" else option.metavar.strip("[]")


def _way_out(option: Any) -> str:
    if option.name in SEVERAL:
        return SEVERAL[option.name]
    if "separated by commas" in (option.help or "").replace("\n", " "):
        return "Separate several values by commas."
    return "Keep one of them."


def repeated(ctx: typer.Context) -> str:
    """Return the command as it was given, with --force, for a shell."""
    words = ["ssdml", str(ctx.info_name), *ctx.meta[WORDS]]
    if "--force" not in words:
        words.insert(words.index("--") if "--" in words else len(words), "--force")
    return shlex.join(words)
