"""Why ours are not the papers' figures: what the report says beside its tables.

Written by hand after a run; the tables are what a new run changes.
"""

from typing import Final

from benchmarks.accuracy.markdown import prose

GRID_WHY: Final = (
    prose(
        """**Why they differ.** Over one GPU type: the paper's mean of 25 % and most of 41 % mean that its plan and
    its fleets of H100, A6000 and 4090 are all within a factor of 1.41 of each other. Under our estimates
    they are not. A dollar of H100 carries 1.7 to 2.1 times as many requests of the 70B model as a dollar of
    A6000 (today's figures), so that sutler is far more above two of the three fleets than the paper says,
    and hardly above the third: against H100 alone it has left what a budget that is no multiple of the
    H100's price leaves over, and cheaper GPUs for long answers. Table 1's figures give the H100 its sparse
    rate, twice the dense one, and the A6000 and 4090 their shader rates; that doubles the distance again.
    Our estimates are not far from what the paper printed of single replicas ([Table 6](accuracy.md)), which
    says nothing about A6000 and 4090."""
    )
    + prose(
        """Unlimited supply: sutler is behind where the market of Table 4 is the limit. With the 70B model that is
    at 60 $/h, in every cell: 8 or 12 H100 against the rival's 20. With the 8B model today's figures make
    the 4090 the best buy, of which the rival has 28 for 15 $/h and 113 for 60, against 16 to 32. The paper
    has its plan 15 % ahead at 60 $/h. On the same supply sutler is never behind; it is far ahead, since one
    type alone is soon used up, which says more about Table 4 than about planning."""
    )
    + prose(
        """Ablations: a uniform composition costs about what it does in the paper, less under today's figures and
    more under Table 1's, where the H100 are that much better; so does HexGen on it. Deployment costs less:
    our rival has the best tensor-parallel degree for each model and whatever GPUs suit it, the paper's has
    one degree for all. Round robin costs far more: it gives the slowest replica as many requests as the
    fastest, and sutler's fleets mix replicas that differ by a factor of four to six. The fleet is not
    planned again for it; the paper does not say how alike the replicas of its fleet are. HexGen on our GPUs
    loses less than half of what the paper reports: here it is given sutler's own search for the request of
    mean length, so that what it loses is what knowing kinds of requests is worth, while the paper ran
    HexGen's search and scheduler."""
    )
)

SHARES_WHY: Final = "\n" + prose(
    """The 8B model agrees under today's figures: mostly 4090. Where the paper rents workstation GPUs for the
    70B model we rent A100 and H100, for the reason above."""
)

BUDGET_WHY: Final = prose(
    """The paper's gap narrows from 30 to 15 % as the budget grows, since the market has limits and the
    homogeneous fleets have none. From 15 $/h on ours does the same against every type, and crosses zero
    against H100 once the market's are used up. At 5 $/h one H100 cannot hold the model and four A40 can:
    that is where mixing, or rather choosing, is worth most."""
)

HELIX_WHY: Final = "\n" + prose(
    """Helix is not one of our strategies: the first row is the paper's figure (Table 3, trace 2, 15 $/h, its
    single-cluster case), and not on our estimates. The paper's own plan is the fair neighbour of ours;
    today's figures come within 5 % of it. The Llama-30B of the other column is not in the catalogue."""
)

PIPELINES_WHY: Final = "\n" + prose(
    """Two stages keep every cell of the grid proven in seconds. Four make sutler's plans better by this much
    on the first availability; the rivals are given two as well, so that comparisons stay fair."""
)

MELANGE_WHY: Final = prose(
    """**Why they differ.** Our engines are of 2025 and carry two to four times as many requests per GPU as the
    paper's vLLM 0.2.7, so that the same rates need far fewer of them: at 1 to 8 requests/s one or two
    machines do, and there is nothing to mix. The savings of the paper's size appear where the paper's do,
    for small requests over large GPUs and with small rates, and they come from rounding: a whole A100 or
    H100 for a load that fills part of it. As the rate grows, ours over the cheapest single type shrink; the
    paper's do not, since its GPU types differ in what they are good at by more than the roofline says. At
    40 ms no fleet of L4 alone is possible: reading 13.5 GB of weights at 300 GB/s takes 45 ms a token. The
    paper has such fleets (Table 6); it measures mean times of an engine that the card's bandwidth in its
    own Table 1 does not allow. Mélange's strategy finds sutler's optimum nearly everywhere: with one
    configuration per GPU type, all that is left to gain are fractions of slices, and its slices are fine
    enough."""
)

CAUCHY_WHY: Final = ""

SPLITWISE_WHY: Final = ""
