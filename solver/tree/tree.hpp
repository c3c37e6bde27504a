// Branch and cut over few rows and many integer columns that compete for them: fleets, whose rows are supply, budget and
// inequalities on what a fleet carries.
//
// A node is a tableau with narrower bounds. Its children differ by a column or a count (a sum of columns with whole
// coefficients, such as all replicas, or those that take GPUs of two types): counts alone leave many fleets that cost
// the same, columns alone move the bounds of large trees too little. Which is chosen by solving both children of a few
// (strong branching), later by what that gave on average (pseudo-costs; Achterberg, Koch & Martin, Operations Research
// Letters 33, 2005). The better child is next, until nothing is left below; then the open node with the least bound.
// Whole points are put to the caller, who says what they are worth and adds rows that they break; so are the root's
// points, and some nodes' now and then. Rows that only have an upper side are in a node's tableau while they bind.
//
// Only what is certified counts as proven: a node is left where its bound, computed from the data (simplex.hpp), is at
// least the cutoff.
#pragma once

#include <cstdint>
#include <functional>

#include "simplex.hpp"

namespace sutler {

using Counts = std::vector<std::int16_t>;

struct Cut {
    Numbers coefficients;
    double upper;
};

struct Told {
    double value = INFINITE;  // of the whole point, where it is a plan
    std::vector<Cut> cuts;    // rows that hold for every plan
};

// Where in the tree a point is.
enum class Place { root, node, plan };

struct Options {
    double cutoff = INFINITE;       // only plans below are looked for
    double gap = 0.0;               // a plan lowers the cutoff to this share of its value below it
    std::int64_t most_nodes = 0;
    int root_rounds = 0;            // of cuts at points that are not whole
    int strong_candidates = 8;      // chosen: with fewer the tree grows faster than its nodes get cheaper
};

struct Outcome {
    double bound = -INFINITE;  // of all plans; infinite: there is none
    bool has_ended = false;    // by its gap, not by a limit
    std::int64_t nodes = 0, problems = 0;
};

class Tree {
   public:
    using Separate = std::function<Told(const Numbers& point, Place place)>;
    using GoesOn = std::function<bool(double bound, std::int64_t nodes)>;

    // `counts`: whole coefficients of all columns each. `is_awake`: columns that tableaus start with; others are 0 at
    // least.
    Tree(
        Program& program, std::vector<Counts> counts, const std::vector<char>& is_awake, Options options,
        Separate separate, GoesOn goes_on)
        : program_(program),
          num_given_(program.rows.size()),
          counts_(std::move(counts)),
          row_of_count_(counts_.size(), NONE),
          options_(options),
          separate_(std::move(separate)),
          goes_on_(std::move(goes_on)),
          cutoff_(options.cutoff),
          least_leaf_(INFINITE),
          first_(program, is_awake),
          tried_{Node{first_, 0.0}, Node{first_, 0.0}},
          better_{tried_[0], tried_[0]} {
        for (std::size_t r = 0; r < num_given_; ++r)
            if (program.rows[r].lower == -INFINITE) cuts_.push_back(r);
        for (auto& one : gained_) one.assign(program.cost.size() + counts_.size(), 0.0);
        for (auto& one : trials_) one.assign(program.cost.size() + counts_.size(), 0);
    }

    Outcome search() {
        Node root{first_, -INFINITE};
        for (std::size_t r = 0; r < num_given_; ++r)
            if (!is_cut(r)) root.tableau.add_row(r);
        if (settle(root, MOST_PIVOTS)) {
            cut_root(root);
            push(std::move(root));
        }
        while (!open_.empty() && open_.front().bound < cutoff_ && !is_over(open_.front().bound)) dive(pop());
        double least = std::min(cutoff_, least_leaf_);
        for (const Node& node : open_) least = std::min(least, node.bound);
        outcome_.has_ended = least >= cutoff_;
        outcome_.bound = least;
        return outcome_;
    }

   private:
    struct Node {
        Tableau tableau;
        double bound;
    };
    struct Branching {
        std::size_t object;  // a column, or from the number of columns on a count
        double value;
        double part() const { return value - std::floor(value); }
    };
    struct Later {
        bool operator()(const Node& a, const Node& b) const { return a.bound > b.bound; }
    };

    static constexpr std::size_t NONE = static_cast<std::size_t>(-1);
    static constexpr int MOST_PIVOTS = 5000, MOST_TRIAL_PIVOTS = 500;
    static constexpr double WHOLE = 1e-6;             // how far from a whole number still is one
    static constexpr double VIOLATED = 1e-8;          // of a row scaled to 1
    static constexpr std::size_t MOST_BYTES = 1u << 29;  // of tableaus that wait: more are computed again
    static constexpr std::int64_t ASKED_EVERY = 50;   // linear programs
    static constexpr std::size_t MOST_CUTS = 300;     // of all columns each: what is cut later is worth no memory

    Program& program_;
    std::size_t num_given_;
    std::vector<Counts> counts_;
    std::vector<std::size_t> row_of_count_, cuts_;  // cuts: given ones and those of the caller, in or out of tableaus
    Options options_;
    Separate separate_;
    GoesOn goes_on_;
    double cutoff_, least_leaf_;
    Outcome outcome_;
    std::vector<Node> open_;  // a heap
    std::size_t bytes_ = 0;
    std::int64_t asked_ = 0, cut_every_ = 20, next_cut_ = 20;  // chosen: asking takes the time of some nodes
    bool is_stopped_ = false;
    Numbers gained_[2];
    std::vector<int> trials_[2];
    Tableau first_;              // without rows
    Node tried_[2], better_[2];  // children, while they are compared

    void push(Node node) {
        if (node.bound >= cutoff_) return;
        if (bytes_ + program_.bytes + node.tableau.bytes() > MOST_BYTES) node.tableau.strip_rows();
        bytes_ += node.tableau.bytes();
        open_.push_back(std::move(node));
        std::push_heap(open_.begin(), open_.end(), Later());
    }

    Node pop() {
        std::pop_heap(open_.begin(), open_.end(), Later());
        Node node = std::move(open_.back());
        open_.pop_back();
        bytes_ -= node.tableau.bytes();
        return node;
    }

    // `least`: the bound of the node that comes next.
    bool is_over(double least) {
        if (outcome_.nodes >= options_.most_nodes) is_stopped_ = true;
        if (!is_stopped_ && outcome_.problems >= asked_ + ASKED_EVERY) {
            asked_ = outcome_.problems;
            is_stopped_ = !goes_on_(open_.empty() ? least : std::min(least, open_.front().bound), outcome_.nodes);
        }
        return is_stopped_;
    }

    // From a node down to where nothing is left; the other children wait.
    void dive(Node node) {
        for (;;) {
            if (is_over(node.bound)) return push(std::move(node));
            if (!settle(node, MOST_PIVOTS)) return;
            if (outcome_.nodes >= next_cut_ && cuts_.size() < num_given_ + MOST_CUTS && !cut(node)) return;
            ++outcome_.nodes;
            std::vector<Branching> choices = fractional(node);
            if (choices.empty()) {
                if (!ask(node)) return;
                continue;
            }
            if (!branch(node, choices)) return;
        }
    }

    // Solves with all rows that it breaks. False where it certainly has no plan below the cutoff; what cannot be
    // settled keeps the bound that it had.
    bool settle(Node& node, int most_pivots) {
        if (node.tableau.is_empty()) return false;
        for (;;) {
            ++outcome_.problems;
            const End end = node.tableau.solve(cutoff_, most_pivots);
            if (end == End::beyond || end == End::infeasible) return false;
            if (end == End::lacking) {
                node.tableau.wake_lacking();
                continue;
            }
            const auto [is_open, has_woken, bound] = node.tableau.fix(cutoff_);
            if (!is_open) return false;
            node.bound = std::max(node.bound, bound);
            if (has_woken || (end == End::optimal && !node.tableau.is_feasible())) continue;
            if (end != End::optimal || !add_violated(node)) return true;
        }
    }

    bool add_violated(Node& node) {
        std::vector<char> has(program_.rows.size(), 0);
        for (std::size_t r = 0; r < node.tableau.num_rows(); ++r) has[node.tableau.row(r)] = 1;
        const auto used = node.tableau.used();
        const auto activity = [&](std::size_t r) {
            double sum = 0.0;
            for (const auto& [column, value] : used) sum += program_.rows[r].coefficients[column] * value;
            return sum;
        };
        bool found = false;
        for (std::size_t cut : cuts_)
            if (!has[cut] && activity(cut) > program_.rows[cut].upper + VIOLATED) {
                node.tableau.add_row(cut);
                found = true;
            }
        return found;
    }

    Numbers point(const Node& node) const {
        Numbers found(program_.cost.size(), 0.0);
        for (std::size_t j = 0; j < node.tableau.num_columns(); ++j)
            found[node.tableau.column(j)] = node.tableau.value(j);
        return found;
    }

    Told tell(const Numbers& at, Place place) {
        Told told = separate_(at, place);
        for (Cut& cut : told.cuts) cuts_.push_back(program_.add_row(std::move(cut.coefficients), -INFINITE, cut.upper));
        if (told.value < INFINITE) cutoff_ = std::min(cutoff_, told.value - options_.gap * std::fabs(told.value));
        return told;
    }

    void cut_root(Node& root) {
        for (int round = 0; round < options_.root_rounds; ++round) {
            const std::size_t known = cuts_.size();
            tell(point(root), Place::root);
            if (cuts_.size() == known || !add_violated(root) || !settle(root, MOST_PIVOTS)) return;
        }
    }

    // One of so many nodes: where none of its cuts is new, fewer are worth it. False where nothing is left.
    bool cut(Node& node) {
        const std::size_t known = cuts_.size();
        tell(point(node), Place::node);
        if (cuts_.size() == known) cut_every_ *= 2;
        next_cut_ = outcome_.nodes + cut_every_;
        return !add_violated(node) || settle(node, MOST_PIVOTS);
    }

    // Puts a whole point to the caller. False where the node is done with.
    bool ask(Node& node) {
        Numbers at = point(node);
        for (std::size_t j = 0; j < at.size(); ++j)
            if (program_.is_integer[j]) at[j] = std::round(at[j]);
        const Told told = tell(at, Place::plan);
        if (node.bound >= cutoff_) return false;
        if (add_violated(node) || node.tableau.straighten()) return true;
        least_leaf_ = std::min(least_leaf_, node.bound);  // as good as the caller says, within rounding
        return false;
    }

    std::vector<Branching> fractional(const Node& node) const {
        const Tableau& tableau = node.tableau;
        std::vector<std::size_t> used;
        for (std::size_t j = 0; j < tableau.num_columns(); ++j)
            if (program_.is_integer[tableau.column(j)] && tableau.value(j) != 0.0) used.push_back(j);
        std::vector<Branching> found;
        const auto consider = [&found](std::size_t object, double value) {
            if (std::fabs(value - std::round(value)) > WHOLE) found.push_back({object, value});
        };
        for (std::size_t a = 0; a < counts_.size(); ++a) {
            double sum = 0.0;
            for (std::size_t j : used) sum += counts_[a][tableau.column(j)] * tableau.value(j);
            consider(program_.cost.size() + a, sum);
        }
        for (std::size_t j : used) consider(tableau.column(j), tableau.value(j));
        return found;
    }

    // Replaces the node by its better child; the other waits. False where neither has anything.
    bool branch(Node& node, std::vector<Branching>& choices) {
        node.tableau.drop_rows(
            [&](std::size_t r) { return is_cut(node.tableau.row(r)) && node.tableau.is_slack(r); });
        shorten(choices);
        double best = -1.0;
        bool is_open[2] = {false, false};  // of `better_`; the other certainly has no plan below the cutoff
        for (const Branching& choice : choices) {
            double gain[2];
            bool is_tried_open[2];
            for (int side : {0, 1}) {
                Node& tried = tried_[side] = node;  // whose memory is used again
                narrow(tried, choice, side);
                is_tried_open[side] = settle_once(tried);
                const double far = is_tried_open[side] ? tried.tableau.objective() : cutoff_;
                gain[side] = std::isfinite(far) ? std::max(far - node.tableau.objective(), 1e-9) : 1.0;
                gained_[side][choice.object] +=
                    gain[side] / std::max(side ? 1.0 - choice.part() : choice.part(), 1e-3);
                ++trials_[side][choice.object];
            }
            if (!is_tried_open[0] && !is_tried_open[1]) return false;
            const bool is_decided = !is_tried_open[0] || !is_tried_open[1];
            if (is_decided || gain[0] * gain[1] > best) {
                best = gain[0] * gain[1];
                for (int side : {0, 1}) {
                    std::swap(better_[side], tried_[side]);
                    is_open[side] = is_tried_open[side];
                }
            }
            if (is_decided) break;  // what is left of the node is the other child, whatever else might be chosen
        }
        const double least[2] = {better_[0].tableau.objective(), better_[1].tableau.objective()};
        const int next = is_open[0] && (!is_open[1] || least[0] <= least[1]) ? 0 : 1;
        Node& other = better_[1 - next];
        if (is_open[1 - next]) {
            other.bound = std::max(other.bound, other.tableau.bound());
            push(other);
        }
        std::swap(node, better_[next]);
        return true;
    }

    bool settle_once(Node& node) {
        if (node.tableau.is_empty()) return false;
        ++outcome_.problems;
        const End end = node.tableau.solve(cutoff_, MOST_TRIAL_PIVOTS);
        return end != End::beyond && end != End::infeasible;
    }

    static Numbers numbers(const Counts& counts) { return Numbers(counts.begin(), counts.end()); }

    bool is_cut(std::size_t row) const { return std::binary_search(cuts_.begin(), cuts_.end(), row); }

    // Those whose gains are not known well, the most fractional first, and the best of the others.
    void shorten(std::vector<Branching>& choices) const {
        const auto known = std::partition(choices.begin(), choices.end(), [&](const Branching& one) {
            return trials_[0][one.object] < 2 || trials_[1][one.object] < 2;
        });
        std::sort(choices.begin(), known, [](const Branching& a, const Branching& b) {
            const double far_a = std::fabs(a.part() - 0.5), far_b = std::fabs(b.part() - 0.5);
            return far_a != far_b ? far_a < far_b : a.object < b.object;
        });
        std::sort(known, choices.end(), [&](const Branching& a, const Branching& b) {
            const double score_a = score(a), score_b = score(b);
            return score_a != score_b ? score_a > score_b : a.object < b.object;
        });
        std::vector<Branching> chosen(
            choices.begin(), std::min(known, choices.begin() + options_.strong_candidates));
        chosen.insert(chosen.end(), known, known + std::min<std::ptrdiff_t>(2, choices.end() - known));
        choices.swap(chosen);
    }

    double score(const Branching& one) const {
        double product = 1.0;
        for (int side : {0, 1}) {
            const double far = side ? 1.0 - one.part() : one.part();
            product *= std::max(gained_[side][one.object] / std::max(trials_[side][one.object], 1) * far, 1e-9);
        }
        return product;
    }

    // side 0: at most the whole number below, 1: at least the one above.
    void narrow(Node& node, const Branching& choice, int side) {
        const double least = side ? std::ceil(choice.value) : -INFINITE;
        const double most = side ? INFINITE : std::floor(choice.value);
        if (choice.object < program_.cost.size()) {
            node.tableau.narrow(node.tableau.place_of_column(choice.object), least, most);
            return;
        }
        std::size_t& row = row_of_count_[choice.object - program_.cost.size()];
        if (row == NONE)
            row = program_.add_row(numbers(counts_[choice.object - program_.cost.size()]), -INFINITE, INFINITE);
        std::size_t r = node.tableau.place_of_row(row);
        if (r == node.tableau.num_rows()) r = node.tableau.add_row(row);
        const double scale = program_.rows[row].scale;
        node.tableau.narrow(node.tableau.num_columns() + r, least * scale, most * scale);
    }
};

}  // namespace sutler
