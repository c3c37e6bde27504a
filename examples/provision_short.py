"""Carries out what a deployment plans: `python examples/provision_short.py chat`; see provision.py for more."""

import sys

import sutler


def carry_out(client: sutler.Client, name: str, after: int) -> int:
    """Waits for the plan after a revision, rents before it gives back, and says so. Printing stands for both."""
    plan = client.current_plan(name, after=after, timeout_s=None) or sys.exit("never")
    change = client.diff(name, plan.revision)
    for machines in (*change.start, *(one for one in change.stop if one.held)):
        print("rent" if machines in change.start else "give back", machines.count, "x", machines.offer_id, flush=True)
    client.acknowledge(name, plan.revision)
    return plan.revision


done = 0
while True:
    done = carry_out(sutler.Client(), sys.argv[1], done)
