"""Plans that keep themselves true: deployments are looked at when something happens, and planned anew if it pays.

facts.py               what a look starts from
load.py                the problem with the traffic that is seen instead of what was stated
standing_machines.py   what of the plan stands: held, still for rent, lost, gone, dearer
drift.py               what has moved, each with its evidence
repeats.py             searches that would be made again
preparing.py           what the solver is to consider because of it, if anything
decision.py            what changes have to bring, and which of the options is worth it
verdict.py             one look, without a database or a clock: facts in, what it comes to and what is told out

Flow: service/workers/replan_job.py takes these steps with both: what is due, the job, the transaction that issues.
"""
