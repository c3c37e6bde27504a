"""A bash script with the command lines of every replica: run on a machine, it starts what belongs there."""

from collections.abc import Iterator

from sutler.service.export.command import Reference, describe_machine, heading_of, processes_on
from sutler.service.export.layout import Layout, RentedMachine, Serving
from sutler.service.export.power import cap_lines
from sutler.service.export.shell import ALL_OR_NONE, WAIT, indented, shell_start

USAGE = ("Usage: bash THIS_FILE MACHINE, on each machine, with the name that it has in the list below.",)


def script_text(layout: Layout) -> tuple[str, tuple[str, ...]]:
    """The script, and what to know before running it."""
    lines = [
        "#!/usr/bin/env bash",
        *(f"# {line}".rstrip() for line in heading_of(layout, (*USAGE, *_addresses(layout)), ())),
        "set -euo pipefail",
        *(line for machine in layout.machines for line in ("", *_function(layout, machine))),
        "",
        *ALL_OR_NONE,
        *_choice(layout),
        WAIT,
    ]
    return "\n".join(lines) + "\n", ()


def address_variable(machine: RentedMachine) -> str:
    """The variable that holds the address of a machine where the head of a multi-node replica runs."""
    return f"{machine.name.upper().replace('-', '_')}_ADDRESS"


def address_reference(serving: Serving) -> Reference:
    """The address of a serving's head, refused by bash and Compose alike when it is not set."""
    machine = serving.head.machine
    return Reference(f"${{{address_variable(machine)}:?set it to the IP address of {machine.name}}}")


def _addresses(layout: Layout) -> tuple[str, ...]:
    heads = dict.fromkeys(s.head.machine.name for s in layout.servings if s.needs_address)
    machines = [machine for machine in layout.machines if machine.name in heads]
    return tuple(
        f"Set {address_variable(machine)} to the IP address of {machine.name}, as its other nodes reach it."
        for machine in machines
    )


def _function(layout: Layout, machine: RentedMachine) -> Iterator[str]:
    yield f"# {describe_machine(machine)}"
    yield f"{_function_name(machine)}() {{"
    yield from indented(cap_lines(layout, machine))
    for serving, process in processes_on(layout, machine):
        yield from indented(shell_start(serving, process, master=address_reference(serving)))
    yield "}"


def _function_name(machine: RentedMachine) -> str:
    return f"start_{machine.name.replace('-', '_')}"


def _choice(layout: Layout) -> Iterator[str]:
    yield 'case "${1-}" in'
    yield from indented(f"{machine.name}) {_function_name(machine)} ;;" for machine in layout.machines)
    yield "  *)"
    yield f'    echo "usage: $0 MACHINE, one of: {" ".join(m.name for m in layout.machines)}" >&2'
    yield "    exit 2"
    yield "    ;;"
    yield "esac"
