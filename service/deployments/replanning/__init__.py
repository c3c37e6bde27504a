"""Plans that keep themselves true: deployments are looked at when something happens, and planned anew if it pays.

facts.py       what a look starts from
load.py        the problem with the traffic that is seen instead of what was stated
standing_machines.py       what of the plan stands: held, still for rent, lost, gone, dearer
drift.py       what has moved, each with its evidence
least_gain.py    what changes have to bring
decision.py    which of the options is worth it
state.py       what a look has found, for people
repeats.py     searches that would be made again
evaluate.py        one look, without a database or a clock: facts in, verdict out
replan_job.py     the same with both: what is due, the job, the transaction that issues
"""
