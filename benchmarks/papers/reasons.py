"""Why ours are not the papers' figures: what the report says beside its tables.

Written by hand after a run; the tables are what a new run changes.
"""

from typing import Final

from benchmarks.accuracy.markdown import prose

GRID_WHY: Final = (
    prose(
        """**Why they differ.** Over one GPU type: the paper's mean of 25 % and most of 41 % mean that its plan
        and its fleets of H100, A6000 and 4090 are all within a factor of 1.41 of each other. Under our estimates
        they are not. A dollar of H100 carries 1.7 to 2.1 times as many requests of the 70B model as a dollar of
        A6000 (today's figures), so that sutler is far more above two of the three fleets than the paper says, and
        hardly above the third: against H100 alone it has left what a budget that is no multiple of the H100's
        price leaves over, and cheaper GPUs for long answers. Table 1's figures give the H100 its sparse rate,
        twice the dense one, and the A6000 and 4090 their shader rates; that makes it 2.5 to 3.0 times. Our
        estimates are not far from what the paper printed of single replicas ([Table 6](accuracy.md)), which says
        nothing about A6000 and 4090."""
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
    fastest, and in sutler's fleets the slowest carries about a quarter of the mean. The fleet is not
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
    homogeneous fleets have none. From 30 $/h on ours does the same against every type, and crosses zero
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
    """**Why they differ.** Our estimates are of engines of 2025, which carry two to four times as many requests
    per GPU as the paper's vLLM 0.2.7 did by its costs, so that the same rates need far fewer of them: at 1 to 8
    requests/s of Arena one to three machines do, and there is little to mix. The savings of the paper's size
    appear where the paper's do, for small requests over large GPUs and with small rates, and they come from
    rounding: a whole A100 or H100 for a load that fills part of it. As the rate grows, ours over the cheapest
    single type shrink; the paper's do not: a guess is that its GPU types differ in what they are good at by more
    than the roofline says. At 40 ms no fleet of L4 alone is possible: reading 13.5 GB of weights at 300 GB/s
    takes 45 ms a token. The paper has such fleets (Table 6); how, with the bandwidth of its own Table 1, we do
    not know. Mélange's strategy finds sutler's optimum nearly everywhere: with one configuration per GPU type,
    all that is left to gain are fractions of slices, and its slices are fine enough."""
)

CAUCHY_WHY: Final = (
    prose(
        """**Why they differ.** Our estimates let a GPU carry more: three A800 do what the paper's example rents
        eight GPUs for (that its requests are as long as LongWriter's is a guess). With so few GPUs most planners
        round up to the same fleet, and none saves anything over Mélange. At four times the rates sutler does, but
        less than the paper, and most of it without roles: by other numbers of H800 and A800. Roles add something
        on ShareGPT alone. On DailyMail they are worth least: with 42 tokens of answer there is little to decode,
        and disaggregated-only does not even carry four times the rate. That the paper gains more by roles may be
        for prompts that hold up answers longer in its engines than our roofline has it: a guess."""
    )
    + "\n"
    + prose(
        """The allocators: CO-LP is never above MC-LP here, and cannot be. Both rent whole combos for the same
        load, and MC-LP rents the cheapest, so it has the most tokens per dollar of what is asked. A guess is that
        the paper's 28.9 % count goodput above what was asked, or runs that fell short of it. Over MCE-LP CO-LP
        gains on DailyMail alone, and far less than 46.9 %. Opportunistic scheduling (section 3.4.2) is not
        modelled."""
    )
)

SPLITWISE_WHY: Final = (
    prose(
        """**Why they differ.** The limits decide. In our estimates the TPOT of a request is the mean over its
        tokens, the prompts of others among them; so the limit of 1.25 times the unloaded machine for the median
        request leaves Baseline-A100 with Llama-2-70B a batch of 5, and Baseline-H100 18, while a machine that
        only decodes is not held up. The paper's simulator takes the same mean, on an engine whose tokens are
        slow: its profiles have 45 ms a token and 154 ms for a prompt of 1,024 tokens (Llama-2-70B, eight A100),
        today's engine 16 and about 90. A limit that is a multiple of the unloaded machine's time forgives slow
        tokens the prompt of another that comes between: one of 1,500 tokens makes a coding request 22 % longer
        there and 27 % today, and 25 % are allowed to half of them. So its Baseline-A100 is held up less. The
        limits do make the difference: with those of TTFT and of the 99th percentile alone (by hand, Llama-2-70B,
        conversation, equal power) AA has 1.4 times the requests/s of Baseline-A100. The paper's 2.15 lies
        between that and our 6.8. That AA is as near to the paper's figures over Baseline-H100 with Llama-2-70B
        has something of a coincidence: with BLOOM-176B it is behind."""
    )
    + "\n"
    + prose(
        """H100 are further ahead of A100 than in the paper: the limits are multiples of an A100's times, which
        leaves an H100 room for longer queues and larger batches. So HH is the best of the paper's designs nearly
        everywhere without caps, and HHcap where power counts, and sutler rents what they do; mixing both types as
        HA does pays in a few cells, by some percent of the cost. Most of HHcap's saving is what HH saves; the cap
        takes 3 to 20 % more off. A request of median length stands for each trace, and the mixed pool of the
        paper, in which machines change sides, is not modelled. With coding's 13 tokens of answer a prompt is half
        of the request, and the limits on the whole of it leave an A100 no time to wait or to hand over a cache:
        it has no plan, together or apart."""
    )
)
