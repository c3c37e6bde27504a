"""Plans that keep themselves true: deployments are looked at when something happens, and planned anew if it pays.

facts.py       what a look starts from
load.py        the problem with the traffic that is seen instead of what was stated
fleet.py       what of the plan stands: held, still for rent, lost, gone, dearer
drift.py       what has moved, each with its evidence
charging.py    what changes have to bring
decision.py    which of the options is worth it
state.py       what a look has found, for people
repeats.py     searches that would be made again
look.py        one look, without a database or a clock: facts in, verdict out
looking.py     the same with both: what is due, the job, the transaction that issues
"""
