"""Why a plan is as it is: what binds, what conflicts, what would be better, how sure it is."""
