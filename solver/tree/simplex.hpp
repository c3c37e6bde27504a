// A dual simplex for boxed variables, whose basis lives on while bounds and rows change, and bounds that hold whatever
// it got wrong.
//
//     minimise  c x   subject to   lower_r <= g_r x <= upper_r,   l <= x <= u
//
// Every row has a logical s_r = g_r x. A basic variable of the tableau is  x_b + sum_j T_ij x_j = 0  over the nonbasic
// ones, which stand at their bounds. Rows are few and columns many, so that only the logicals' part of the tableau is
// kept, dense; of the rest  T_ij = -sum_r T_i,s_r g_rj  a line or a column is computed when it is needed. For any
// multipliers y of the rows (Neumaier & Shcherbina, Mathematical Programming 99, 2004)
//
//     c x  >=  sum_j min((c_j - sum_r y_r g_rj) x_j)  +  sum_r min(y_r s_r)     each over its own bounds
//
// which is computed from the data as they came, less what its rounding may be (`certified`): the tableau may drift, and
// costs are tilted a little against cycling, without harm to what is proven.
//
// Of very many columns most sleep: they are no part of the tableau and stand at 0, their lower bound, until a solution
// without them has reduced costs, or a proof that there is none coefficients, that call for them. Bounds count them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <iterator>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace sutler {

using Numbers = std::vector<double>;
constexpr double INFINITE = std::numeric_limits<double>::infinity();
constexpr double FEASIBLE = 1e-9;       // how far a variable may be beyond its bound, rows being scaled to about 1
constexpr double LEAST_PIVOT = 1e-7;    // smaller entries of the tableau are taken for rounding
constexpr int PIVOTS_TO_REFACTOR = 60;  // chosen: rounding has grown to some 1e-10 by then
constexpr double DRIFTED = 1e-6;        // of a pivot, between what its line and its column say
constexpr double LOST = 1e-7;           // reduced costs of a wrong sign beyond this are no rounding
constexpr double CALLS = -1e-8;         // of the largest cost: reduced costs below, beyond what those are tilted by
constexpr std::size_t SPAN = 2048;      // chosen: of columns, whose numbers are half of a processor's nearest cache
constexpr std::size_t WOKEN_AT_ONCE = 200;  // chosen: the most called for; the others may not be needed with these

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__gnu_linux__)
#define WIDER_WHERE_POSSIBLE __attribute__((target_clones("avx2", "default")))
#else
#define WIDER_WHERE_POSSIBLE
#endif

// to[i] -= factor * from[i]: no sum, so that the width of the machine's registers changes no digit.
WIDER_WHERE_POSSIBLE inline void subtract(double* to, const double* from, double factor, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) to[i] -= factor * from[i];
}

// The same of four lines, one after the other.
WIDER_WHERE_POSSIBLE inline void subtract_four(
    double* to, const double* const* from, const double* factor, std::size_t count) {
    const double *a = from[0], *b = from[1], *c = from[2], *d = from[3];
    const double p = factor[0], q = factor[1], r = factor[2], s = factor[3];
    for (std::size_t i = 0; i < count; ++i) to[i] = (((to[i] - p * a[i]) - q * b[i]) - r * c[i]) - s * d[i];
}

// The same of any number of lines, from a place in them on.
inline void subtract_rows(
    double* to, const std::vector<const double*>& rows, const Numbers& factors, std::size_t start, std::size_t count) {
    std::size_t n = 0;
    for (; n + 4 <= rows.size(); n += 4) {
        const double* four[] = {rows[n] + start, rows[n + 1] + start, rows[n + 2] + start, rows[n + 3] + start};
        subtract_four(to, four, factors.data() + n, count);
    }
    for (; n < rows.size(); ++n) subtract(to, rows[n] + start, factors[n], count);
}

// to[j] -= factor * row[j], and the sum of what is taken there.
WIDER_WHERE_POSSIBLE inline void subtract_and_size(
    double* to, double* size, const double* row, double factor, std::size_t count) {
    for (std::size_t j = 0; j < count; ++j) {
        const double part = factor * row[j];
        to[j] -= part;
        size[j] += std::fabs(part);
    }
}

struct Row {
    Numbers coefficients;  // of all columns, scaled by a power of 2 to about 1 at most
    double lower, upper, scale;
};

// All that nodes share. Rows are only ever added.
struct Program {
    Numbers cost, tilted_cost, lower, upper;
    std::vector<char> is_integer;
    double largest_cost = 0.0;
    std::deque<Row> rows;

    // What one pivot computes: used again, so that no node has its own.
    struct Work {
        Numbers line, down, factors;
        std::vector<const double*> rows;
        std::vector<std::size_t> able;
    };
    mutable Work work;
    mutable std::size_t bytes = 0;  // of the rows that nodes share in parts

    std::size_t add_row(Numbers coefficients, double lower, double upper) {
        double largest = 0.0;
        for (double one : coefficients) largest = std::max(largest, std::fabs(one));
        const double scale = largest > 0.0 ? std::ldexp(1.0, -std::ilogb(largest)) : 1.0;
        for (double& one : coefficients) one *= scale;
        rows.push_back({std::move(coefficients), lower * scale, upper * scale, scale});
        return rows.size() - 1;
    }
};

// Some columns of a program, and of its rows what those have there, side by side; shared by nodes that have the same.
class Part {
   public:
    Part(const Program& program, std::vector<std::size_t> columns) : program_(program), columns_(std::move(columns)) {}
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;
    ~Part() {
        for (const Numbers& one : room_) program_.bytes -= one.size() * sizeof(double);
    }

    const std::vector<std::size_t>& columns() const { return columns_; }

    const double* row(std::size_t r) {
        if (r >= rows_.size()) rows_.resize(program_.rows.size());
        if (!rows_[r] && !columns_.empty())
            rows_[r] = taken(program_.rows[r].coefficients.data(), columns_, room_for(1));
        return rows_[r];
    }

    // Of these columns of it, by their places, with rows that it has.
    std::shared_ptr<Part> narrowed(const std::vector<std::size_t>& places, const std::vector<std::size_t>& rows) {
        std::vector<std::size_t> columns;
        columns.reserve(places.size());
        for (std::size_t place : places) columns.push_back(columns_[place]);
        auto found = std::make_shared<Part>(program_, std::move(columns));
        found->rows_.resize(program_.rows.size());
        double* room = found->room_for(rows.size());
        for (std::size_t r : rows) {
            found->rows_[r] = taken(row(r), places, room);
            room += places.size();
        }
        return found;
    }

   private:
    const Program& program_;
    std::vector<std::size_t> columns_;
    std::vector<const double*> rows_;  // of the program's; null: not asked for yet
    std::deque<Numbers> room_;

    double* room_for(std::size_t num_rows) {
        room_.emplace_back(num_rows * columns_.size());
        program_.bytes += room_.back().size() * sizeof(double);
        return room_.back().data();
    }

    static const double* taken(const double* from, const std::vector<std::size_t>& places, double* to) {
        for (std::size_t j = 0; j < places.size(); ++j) to[j] = from[places[j]];
        return to;
    }
};

enum class End { optimal, beyond, infeasible, lacking, stalled };

// Columns 0..k-1 are those of the program that are awake and not fixed at 0, k..k+m-1 the logicals of the rows that it
// has.
class Tableau {
   public:
    Tableau(const Program& program, const std::vector<char>& is_awake) : program_(&program) {
        std::vector<std::size_t> awake, asleep;
        for (std::size_t j = 0; j < program.cost.size(); ++j) (is_awake[j] ? awake : asleep).push_back(j);
        asleep_ = std::make_shared<const std::vector<std::size_t>>(std::move(asleep));
        part_ = std::make_shared<Part>(program, std::move(awake));
        for (std::size_t j : part_->columns()) {
            lower_.push_back(program.lower[j]);
            upper_.push_back(program.upper[j]);
            reduced_.push_back(program.tilted_cost[j]);
        }
        is_basic_.assign(num_columns(), 0);
        value_.resize(num_columns());
        moves_.resize(num_columns());
        for (std::size_t j = 0; j < num_columns(); ++j) {
            value_[j] = resting(j);
            note_moves(j);
        }
        recount();
    }

    std::size_t num_columns() const { return part_->columns().size(); }
    std::size_t num_rows() const { return rows_.size(); }
    std::size_t column(std::size_t j) const { return part_->columns()[j]; }
    std::size_t row(std::size_t r) const { return rows_[r]; }
    double value(std::size_t j) const { return value_[j]; }
    double objective() const { return objective_; }
    std::size_t bytes() const { return entries_.size() * sizeof(double); }

    bool is_slack(std::size_t r) const {
        const std::size_t s = num_columns() + r;
        return is_basic_[s] && std::min(value_[s] - lower_[s], upper_[s] - value_[s]) > 1e-3;
    }

    // The place of a row of the program, or of a column that is left; num_rows(), num_columns() where it is not there.
    std::size_t place_of_row(std::size_t row) const {
        return static_cast<std::size_t>(std::find(rows_.begin(), rows_.end(), row) - rows_.begin());
    }
    std::size_t place_of_column(std::size_t column) const {
        const std::vector<std::size_t>& all = part_->columns();
        const auto found = std::lower_bound(all.begin(), all.end(), column);
        const bool is_there = found != all.end() && *found == column;
        return static_cast<std::size_t>((is_there ? found : all.end()) - all.begin());
    }

    // Columns of the program that are not 0, and their values.
    std::vector<std::pair<std::size_t, double>> used() const {
        std::vector<std::pair<std::size_t, double>> found;
        for (std::size_t j = 0; j < num_columns(); ++j)
            if (value_[j] != 0.0) found.emplace_back(column(j), value_[j]);
        return found;
    }

    double activity(std::size_t row) const {
        const Numbers& of_column = program_->rows[row].coefficients;
        double sum = 0.0;
        for (std::size_t j = 0; j < num_columns(); ++j)
            if (value_[j] != 0.0) sum += of_column[column(j)] * value_[j];
        return sum;
    }

    // Its logical becomes basic, in or out of its bounds.
    std::size_t add_row(std::size_t row) {
        const Row& added = program_->rows[row];
        const std::size_t k = num_columns(), m = num_rows(), s = k + m;
        if (!is_bare()) {
            if (m + 1 > stride_) widen(m + 25);
            entries_.resize((m + 1) * stride_, 0.0);
            for (std::size_t i = 0; i < m; ++i) {
                const std::size_t b = basis_[i];
                const double taken = b < k ? added.coefficients[column(b)] : 0.0;
                if (taken == 0.0) continue;
                for (std::size_t t = 0; t < m; ++t) of_logical(t)[m] += taken * of_logical(t)[i];
            }
            of_logical(m)[m] = 1.0;
        }
        const double sum = activity(row);
        rows_.push_back(row);
        lower_.push_back(added.lower);
        upper_.push_back(added.upper);
        value_.push_back(sum);
        reduced_.push_back(0.0);
        is_basic_.push_back(1);
        moves_.push_back(STAYS);
        basis_.push_back(s);
        return m;
    }

    // Narrows a column (or, from num_columns() on, a logical); what is nonbasic and beyond moves along.
    void narrow(std::size_t j, double lower, double upper) {
        lower_[j] = std::max(lower_[j], lower);
        upper_[j] = std::min(upper_[j], upper);
        if (is_basic_[j] || is_bare()) return;
        const double moved = std::clamp(value_[j], std::min(lower_[j], upper_[j]), upper_[j]) - value_[j];
        value_[j] += moved;
        note_moves(j);
        if (moved == 0.0) return;
        objective_ += reduced_[j] * moved;
        const Numbers& down = column_of(j);
        for (std::size_t i = 0; i < num_rows(); ++i) value_[basis_[i]] -= down[i] * moved;
    }

    // Whether all that is basic is within its bounds.
    bool is_feasible() const { return leaving() == num_rows(); }

    bool is_empty() const {  // whether some column or row has no values left
        for (std::size_t j = 0; j < lower_.size(); ++j)
            if (lower_[j] > upper_[j]) return true;
        return false;
    }

    // Dual simplex, until the objective is certainly at least `cutoff`.
    End solve(double cutoff, int most_pivots) {
        if (is_bare() || since_ > PIVOTS_TO_REFACTOR) refactor();
        int checked = -5;
        for (int pivots = 0; pivots < most_pivots; ++pivots) {
            if (objective_ >= cutoff && pivots >= checked + 5) {
                if (is_beyond(cutoff)) return End::beyond;
                checked = pivots;
            }
            const std::size_t r = leaving();
            if (r == num_rows()) return End::optimal;
            const Numbers& line = line_of(r);
            const std::size_t q = entering(r, line);
            if (q == width()) {
                if (is_certainly_infeasible(r)) return End::infeasible;
                if (!lacking(r).empty()) return End::lacking;
                if (since_ == 0) return End::stalled;
                refactor();
                continue;
            }
            const Numbers& down = column_of(q);
            if (since_ > 0 && std::fabs(down[r] - line[q]) > DRIFTED * std::fabs(line[q])) {
                refactor();
                continue;
            }
            pivot(r, q, line, down);
        }
        return End::stalled;
    }

    // A lower bound of the minimum by the present multipliers, the costs as they came.
    double bound() const { return certified(multipliers(), true); }

    // Wakes the columns that it lacks, where that is how `solve` ended.
    void wake_lacking() { insert(lacking(leaving())); }

    struct Fixed {
        bool is_open, has_woken;
        double bound;
    };

    // Narrows integer columns to what plans below `cutoff` can have, and forgets those that can only be 0; wakes others
    // instead where a smaller minimum calls for them. Not open: there is no such plan.
    Fixed fix(double cutoff) {
        Numbers reduced, error, slept;
        const double least = certified(multipliers(), true, &reduced, &error, &slept);
        if (least >= cutoff) return {false, false, least};
        const std::vector<std::size_t> woken = called(slept, CALLS * program_->largest_cost);
        if (!woken.empty()) {
            insert(woken);
            return {true, true, least};
        }
        std::vector<std::size_t> asleep;
        for (std::size_t a = 0; a < slept.size(); ++a)
            if (slept[a] <= cutoff - least) asleep.push_back((*asleep_)[a]);
        if (asleep.size() < slept.size() * 4 / 5)
            asleep_ = std::make_shared<const std::vector<std::size_t>>(std::move(asleep));
        for (std::size_t j = 0; j < num_columns(); ++j) {
            if (!program_->is_integer[column(j)] || upper_[j] - lower_[j] < 0.5) continue;
            const double up = reduced[j] - error[j], down = -reduced[j] - error[j];
            if (up > 0.0)
                narrow(j, lower_[j], std::min(upper_[j], lower_[j] + std::floor((cutoff - least) / up + 1e-9)));
            else if (down > 0.0)
                narrow(j, std::max(lower_[j], upper_[j] - std::floor((cutoff - least) / down + 1e-9)), upper_[j]);
        }
        forget_columns();
        return {true, false, least};
    }

    // Rows whose logicals are basic; nothing else of the tableau changes.
    template <typename Chosen>
    void drop_rows(Chosen is_chosen) {
        const std::size_t k = num_columns();
        std::vector<std::size_t> all, stay, places, kept;
        for (std::size_t j = 0; j < k; ++j) all.push_back(j);
        for (std::size_t r = 0; r < num_rows(); ++r)
            if (!(is_basic_[k + r] && is_chosen(r))) stay.push_back(r);
        if (stay.size() == num_rows()) return;
        for (std::size_t r : stay) all.push_back(k + r);
        for (std::size_t i = 0; i < num_rows(); ++i)
            if (basis_[i] < k || std::binary_search(stay.begin(), stay.end(), basis_[i] - k)) places.push_back(i);
        const std::size_t stride = stay.size() + 24;
        Numbers entries(stay.size() * stride, 0.0);
        for (std::size_t r = 0; r < stay.size(); ++r)
            for (std::size_t i = 0; i < places.size(); ++i)
                entries[r * stride + i] = of_logical(stay[r])[places[i]];
        for (std::size_t i : places) kept.push_back(basis_[i]);
        basis_.swap(kept);
        keep_variables(all);
        kept.clear();
        for (std::size_t r : stay) kept.push_back(rows_[r]);
        rows_.swap(kept);
        entries_.swap(entries);
        stride_ = stride;
    }

    // Takes the costs as they came from now on. False where it already does.
    bool straighten() {
        const bool was_tilted = !is_straight_;
        is_straight_ = true;
        strip();
        return was_tilted;
    }

    // Forgets all that can be computed again.
    void strip() {
        Numbers().swap(entries_);
        stride_ = 0;
    }
    void strip_rows() {
        strip();
        part_ = std::make_shared<Part>(*program_, part_->columns());
    }

   private:
    const Program* program_;
    std::shared_ptr<Part> part_;  // the columns that are awake
    Numbers entries_;             // [logicals][basis] of the tableau, a logical's side by side
    Numbers lower_, upper_, value_, reduced_;
    std::vector<std::size_t> basis_, rows_;
    std::shared_ptr<const std::vector<std::size_t>> asleep_;  // columns, shared with other nodes
    std::vector<char> is_basic_;
    std::vector<char> moves_;  // of nonbasic variables: whether they may rise, fall, or both
    std::size_t stride_ = 0;
    double objective_ = 0.0;
    int since_ = 0;
    bool is_straight_ = false;

    const Numbers& costs() const { return is_straight_ ? program_->cost : program_->tilted_cost; }
    std::size_t width() const { return num_columns() + num_rows(); }
    bool is_bare() const { return stride_ == 0; }
    double* of_logical(std::size_t r) { return entries_.data() + r * stride_; }
    const double* of_logical(std::size_t r) const { return entries_.data() + r * stride_; }
    double resting(std::size_t j, double near = 0.0) const {
        if (reduced_[j] > 1e-10 && std::isfinite(lower_[j])) return lower_[j];
        if (reduced_[j] < -1e-10 && std::isfinite(upper_[j])) return upper_[j];
        return std::min(std::max(near, lower_[j]), upper_[j]);
    }

    void recount() {
        objective_ = 0.0;
        for (std::size_t j = 0; j < num_columns(); ++j) objective_ += costs()[column(j)] * value_[j];
    }

    void widen(std::size_t stride) {
        Numbers wider(num_rows() * stride, 0.0);
        for (std::size_t r = 0; r < num_rows(); ++r)
            std::copy(of_logical(r), of_logical(r) + num_rows(), wider.data() + r * stride);
        entries_.swap(wider);
        stride_ = stride;
    }

    std::size_t leaving() const {
        std::size_t found = num_rows();
        double worst = FEASIBLE;
        for (std::size_t i = 0; i < num_rows(); ++i) {
            const std::size_t b = basis_[i];
            const double beyond = std::max(lower_[b] - value_[b], value_[b] - upper_[b]);
            if (beyond > worst * std::max(1.0, std::fabs(value_[b]))) {
                worst = beyond / std::max(1.0, std::fabs(value_[b]));
                found = i;
            }
        }
        return found;
    }

    static constexpr char STAYS = 0, RISES = 1, FALLS = 2;

    void note_moves(std::size_t j) {
        const bool is_free = !is_basic_[j] && lower_[j] < upper_[j];
        moves_[j] = is_free ? (value_[j] < upper_[j] ? RISES : STAYS) | (value_[j] > lower_[j] ? FALLS : STAYS) : STAYS;
    }

    // The tableau's line i, of all variables; 0 for those that are basic, but its own.
    Numbers& line_of(std::size_t i) {
        const std::size_t k = num_columns(), m = num_rows();
        Numbers& line = program_->work.line;
        line.assign(width(), 0.0);
        std::vector<const double*>& rows = program_->work.rows;
        Numbers& factors = program_->work.factors;
        rows.clear();
        factors.clear();
        for (std::size_t r = 0; r < m; ++r) {
            line[k + r] = of_logical(r)[i];
            if (line[k + r] == 0.0) continue;
            rows.push_back(part_->row(rows_[r]));
            factors.push_back(line[k + r]);
        }
        subtract_rows(line.data(), rows, factors, 0, k);
        for (std::size_t b : basis_) line[b] = 0.0;
        line[basis_[i]] = 1.0;
        return line;
    }

    // The tableau's column j, of all that is basic.
    Numbers& column_of(std::size_t j) {
        const std::size_t k = num_columns(), m = num_rows();
        Numbers& down = program_->work.down;
        if (j >= k) {
            down.assign(of_logical(j - k), of_logical(j - k) + m);
            return down;
        }
        down.assign(m, 0.0);
        for (std::size_t r = 0; r < m; ++r) {
            const double own = part_->row(rows_[r])[j];
            if (own != 0.0) subtract(down.data(), of_logical(r), own, m);
        }
        return down;
    }

    // The column that keeps the reduced costs' signs; among nearly as good ones the largest pivot (Harris,
    // Mathematical Programming 5, 1973). width(): none.
    std::size_t entering(std::size_t r, const Numbers& line) const {
        const std::size_t b = basis_[r];
        const bool is_below = value_[b] < lower_[b];
        const char by_less = is_below ? RISES : FALLS, by_more = is_below ? FALLS : RISES;
        const double *own = line.data(), *reduced = reduced_.data();
        const char* moves = moves_.data();
        std::vector<std::size_t>& able = program_->work.able;
        able.resize(width() + 1);
        std::size_t* const first = able.data();
        std::size_t* last = first;
        double ratio = INFINITE;
        for (std::size_t j = 0, end = width(); j < end; ++j) {
            const int needed = (own[j] <= -LEAST_PIVOT) * by_less | (own[j] >= LEAST_PIVOT) * by_more;
            *last = j;
            last += (moves[j] & needed) != 0;  // no branch, which would be guessed wrong
        }
        for (const std::size_t* at = first; at != last; ++at) {
            const double price = std::fabs(reduced[*at]) + 1e-10, size = std::fabs(own[*at]);
            if (price < ratio * size) ratio = price / size;
        }
        std::size_t found = width();
        double largest = 0.0;
        for (const std::size_t* at = first; at != last; ++at) {
            const double size = std::fabs(own[*at]);
            if (size > largest && std::fabs(reduced[*at]) <= ratio * size) {
                largest = size;
                found = *at;
            }
        }
        return found;
    }

    // `line`, `down`: those of r and q.
    void pivot(std::size_t r, std::size_t q, const Numbers& line, const Numbers& down) {
        const std::size_t b = basis_[r];
        const double target = value_[b] < lower_[b] ? lower_[b] : upper_[b];
        const double moved = (value_[b] - target) / line[q], price = reduced_[q] / line[q];
        objective_ += reduced_[q] * moved;
        for (std::size_t i = 0; i < num_rows(); ++i)
            if (i != r) value_[basis_[i]] -= down[i] * moved;
        value_[b] = target;
        value_[q] += moved;
        if (price != 0.0) subtract(reduced_.data(), line.data(), price, width());
        reduced_[q] = 0.0;
        eliminate(r, down);
        basis_[r] = q;
        is_basic_[q] = 1;
        is_basic_[b] = 0;
        note_moves(q);
        note_moves(b);
        ++since_;
    }

    // What has the column `down` takes the place r of the basis.
    void eliminate(std::size_t r, const Numbers& down) {
        const double inverse = 1.0 / down[r];
        for (std::size_t t = 0; t < num_rows(); ++t) {
            double* own = of_logical(t);
            if (own[r] == 0.0) continue;
            const double factor = own[r] * inverse;
            subtract(own, down.data(), factor, num_rows());
            own[r] = factor;
        }
    }

    // The same basis from the program's rows; where that was lost in rounding the logicals, from which boxed columns
    // can always start.
    void refactor() {
        const std::size_t k = num_columns(), m = num_rows();
        std::vector<std::size_t> wanted;
        std::vector<char> is_taken(m, 0);
        for (std::size_t b : basis_) {
            if (b < k)
                wanted.push_back(b);
            else
                is_taken[b - k] = 1;
        }
        if (is_bare()) stride_ = m + 24;
        start_from_logicals();
        while (!wanted.empty()) {
            double largest = 1e-9;
            std::size_t chosen = wanted.size(), at = m;
            for (std::size_t w = 0; w < wanted.size() && largest < 0.3; ++w) {
                const Numbers& down = column_of(wanted[w]);
                for (std::size_t r = 0; r < m; ++r)
                    if (!is_taken[r] && std::fabs(down[r]) > largest) {
                        largest = std::fabs(down[r]);
                        chosen = w;
                        at = r;
                    }
            }
            if (at == m) break;  // the rest depends on those before: it rests at a bound
            const std::size_t q = wanted[chosen];
            wanted.erase(wanted.begin() + static_cast<std::ptrdiff_t>(chosen));
            eliminate(at, column_of(q));
            basis_[at] = q;
            is_taken[at] = 1;
        }
        reprice();
        if (!can_rest()) {
            start_from_logicals();
            reprice();
        }
        for (std::size_t j = 0; j < width(); ++j)
            if (!is_basic_[j]) value_[j] = resting(j, value_[j]);
        Numbers shift(m, 0.0);  // of every row: what its nonbasic variables bring it off
        for (std::size_t j = 0; j < k; ++j)
            if (!is_basic_[j] && value_[j] != 0.0)
                for (std::size_t r = 0; r < m; ++r) shift[r] += part_->row(rows_[r])[j] * value_[j];
        for (std::size_t r = 0; r < m; ++r)
            if (!is_basic_[k + r]) shift[r] -= value_[k + r];
        for (std::size_t i = 0; i < m; ++i) {
            double sum = 0.0;
            for (std::size_t r = 0; r < m; ++r) sum += of_logical(r)[i] * shift[r];
            value_[basis_[i]] = sum;
        }
        for (std::size_t j = 0; j < width(); ++j) note_moves(j);
        recount();
        since_ = 0;
    }

    void start_from_logicals() {
        entries_.assign(num_rows() * stride_, 0.0);
        for (std::size_t r = 0; r < num_rows(); ++r) {
            of_logical(r)[r] = 1.0;
            basis_[r] = num_columns() + r;
        }
    }

    // Whether each nonbasic variable has the bound that its reduced cost asks for.
    bool can_rest() const {
        for (std::size_t j = 0; j < width(); ++j)
            if ((reduced_[j] > LOST && !std::isfinite(lower_[j])) || (reduced_[j] < -LOST && !std::isfinite(upper_[j])))
                return false;
        return true;
    }

    // Reduced costs of this basis.
    void reprice() {
        const std::size_t k = num_columns(), m = num_rows();
        std::fill(is_basic_.begin(), is_basic_.end(), 0);
        for (std::size_t b : basis_) is_basic_[b] = 1;
        for (std::size_t j = 0; j < k; ++j) reduced_[j] = costs()[column(j)];
        for (std::size_t r = 0; r < m; ++r) {
            double price = 0.0;
            for (std::size_t i = 0; i < m; ++i)
                if (basis_[i] < k) price -= costs()[column(basis_[i])] * of_logical(r)[i];
            reduced_[k + r] = price;
            if (price != 0.0) subtract(reduced_.data(), part_->row(rows_[r]), price, k);
        }
        for (std::size_t b : basis_) reduced_[b] = 0.0;
    }

    Numbers multipliers() const {
        return Numbers(reduced_.begin() + static_cast<std::ptrdiff_t>(num_columns()), reduced_.end());
    }

    bool is_beyond(double cutoff) const {
        const Numbers weights = multipliers();
        return certified(weights, true, nullptr, nullptr, nullptr, false) >= cutoff &&
               (asleep_->empty() || certified(weights, true) >= cutoff);
    }

    // What the columns asleep have left of their costs (or of 0) at these weights of the rows, at least.
    Numbers left_asleep(const Numbers& weights, bool has_cost) const {
        const std::vector<std::size_t>& columns = *asleep_;
        Numbers left(columns.size(), 0.0);
        if (has_cost)
            for (std::size_t a = 0; a < columns.size(); ++a) left[a] = program_->cost[columns[a]];
        double size = 0.0;  // of the parts of one, coefficients being below 2
        for (double one : left) size = std::max(size, std::fabs(one));
        std::vector<const double*> rows;
        Numbers factors;
        for (std::size_t r = 0; r < num_rows(); ++r) {
            if (weights[r] == 0.0) continue;
            rows.push_back(program_->rows[rows_[r]].coefficients.data());
            factors.push_back(weights[r]);
            size += 2.0 * std::fabs(weights[r]);
        }
        double near[SPAN] = {};  // a span of columns stays in the cache while all rows pass
        for (std::size_t a = 0; a < columns.size();) {
            const std::size_t start = columns[a], count = std::min(SPAN, program_->cost.size() - start);
            const std::size_t first = a;
            while (a < columns.size() && columns[a] < start + count) ++a;
            for (std::size_t b = first; b < a; ++b) near[columns[b] - start] = left[b];
            subtract_rows(near, rows, factors, start, count);
            for (std::size_t b = first; b < a; ++b) left[b] = near[columns[b] - start];
        }
        const double error = size * (static_cast<double>(num_rows()) + 4.0) * std::numeric_limits<double>::epsilon();
        for (double& one : left) one -= error;
        return left;
    }

    // Columns asleep with the least of these numbers, below `most`.
    std::vector<std::size_t> called(const Numbers& left, double most) const {
        std::vector<std::size_t> found;
        for (std::size_t a = 0; a < left.size(); ++a)
            if (left[a] < most) found.push_back(a);
        if (found.size() > WOKEN_AT_ONCE) {
            const auto is_less = [&left](std::size_t a, std::size_t b) {
                return left[a] != left[b] ? left[a] < left[b] : a < b;
            };
            std::nth_element(found.begin(), found.begin() + WOKEN_AT_ONCE, found.end(), is_less);
            found.resize(WOKEN_AT_ONCE);
            std::sort(found.begin(), found.end());
        }
        for (std::size_t& one : found) one = (*asleep_)[one];
        return found;
    }

    // Columns asleep that could bring the basic variable of a row that none brings into its bounds there.
    std::vector<std::size_t> lacking(std::size_t r) const {
        if (asleep_->empty()) return {};
        const std::size_t b = basis_[r];
        const double sign = value_[b] < lower_[b] ? 1.0 : -1.0;
        Numbers weights(num_rows());
        for (std::size_t i = 0; i < num_rows(); ++i) weights[i] = sign * of_logical(i)[r];
        return called(left_asleep(weights, false), -LEAST_PIVOT);
    }

    void insert(const std::vector<std::size_t>& woken) {
        const std::size_t k = num_columns(), m = num_rows();
        std::vector<std::size_t> all(part_->columns()), order, places(k + m), asleep;
        all.insert(all.end(), woken.begin(), woken.end());
        for (std::size_t a = 0; a < all.size(); ++a) order.push_back(a);
        std::sort(order.begin(), order.end(), [&all](std::size_t a, std::size_t b) { return all[a] < all[b]; });
        for (std::size_t place = 0; place < order.size(); ++place)
            if (order[place] < k) places[order[place]] = place;
        for (std::size_t r = 0; r < m; ++r) places[k + r] = all.size() + r;
        const auto widened = [&](auto& values, auto of_new) {
            std::remove_reference_t<decltype(values)> found;
            for (std::size_t a : order) found.push_back(a < k ? values[a] : of_new(all[a]));
            found.insert(found.end(), values.begin() + static_cast<std::ptrdiff_t>(k), values.end());
            values.swap(found);
        };
        widened(lower_, [this](std::size_t j) { return program_->lower[j]; });
        widened(upper_, [this](std::size_t j) { return program_->upper[j]; });
        widened(value_, [](std::size_t) { return 0.0; });
        widened(reduced_, [](std::size_t) { return 0.0; });
        widened(is_basic_, [](std::size_t) { return char{0}; });
        widened(moves_, [](std::size_t) { return char{0}; });
        for (std::size_t& b : basis_) b = places[b];
        std::sort(all.begin(), all.end());
        part_ = std::make_shared<Part>(*program_, std::move(all));
        std::set_difference(
            asleep_->begin(), asleep_->end(), woken.begin(), woken.end(), std::back_inserter(asleep));
        asleep_ = std::make_shared<const std::vector<std::size_t>>(std::move(asleep));
        strip();
    }

    // The bound at the head of this file. `reduced`, `error`: its reduced costs, and how far they may be off; `slept`:
    // at least those of columns asleep, which are left out where they do not count.
    double certified(
        const Numbers& weights, bool has_cost, Numbers* reduced = nullptr, Numbers* error = nullptr,
        Numbers* slept = nullptr, bool counts_asleep = true) const {
        const std::size_t k = num_columns(), m = num_rows();
        const double unit = (static_cast<double>(m) + 4.0) * std::numeric_limits<double>::epsilon();
        Numbers own(k, 0.0), size(k, 0.0);
        if (has_cost)
            for (std::size_t j = 0; j < k; ++j) size[j] = std::fabs(own[j] = program_->cost[column(j)]);
        double sum = 0.0, sizes = 0.0;
        for (std::size_t r = 0; r < m; ++r) {
            const double weight = weights[r], side = weight > 0.0 ? lower_[k + r] : upper_[k + r];
            if (weight == 0.0 || !std::isfinite(side)) continue;
            sum += weight * side;
            sizes += std::fabs(weight * side);
            subtract_and_size(own.data(), size.data(), part_->row(rows_[r]), weight, k);
        }
        for (std::size_t j = 0; j < k; ++j) {
            const double low = own[j] - unit * size[j], high = own[j] + unit * size[j];
            const double part = std::min(least(low, j), least(high, j));
            sum += part;
            sizes += std::fabs(part);
        }
        std::size_t count = k + m;
        if (counts_asleep && !asleep_->empty()) {
            Numbers binding(weights);
            for (std::size_t r = 0; r < m; ++r)
                if (!std::isfinite(weights[r] > 0.0 ? lower_[k + r] : upper_[k + r])) binding[r] = 0.0;
            Numbers left = left_asleep(binding, has_cost);
            for (std::size_t a = 0; a < left.size(); ++a) {
                if (left[a] >= 0.0) continue;
                const double part = left[a] * program_->upper[(*asleep_)[a]];
                sum += part;
                sizes += std::fabs(part);
            }
            count += left.size();
            if (slept) slept->swap(left);
        }
        if (reduced) {
            for (double& one : size) one *= unit;
            reduced->swap(own);
            error->swap(size);
        }
        if (!std::isfinite(sum)) return -INFINITE;
        return sum - sizes * static_cast<double>(count) * std::numeric_limits<double>::epsilon();
    }

    double least(double factor, std::size_t j) const {
        return factor == 0.0 ? 0.0 : factor * (factor > 0.0 ? lower_[j] : upper_[j]);
    }

    // A combination of the rows that no values within the bounds meet.
    bool is_certainly_infeasible(std::size_t r) const {
        Numbers weights(num_rows());
        for (double sign : {1.0, -1.0}) {
            for (std::size_t i = 0; i < num_rows(); ++i) weights[i] = sign * of_logical(i)[r];
            if (certified(weights, false) > 1e-9) return true;
        }
        return false;
    }

    void forget_columns() {
        std::vector<std::size_t> stay;
        for (std::size_t j = 0; j < num_columns(); ++j)
            if (is_basic_[j] || upper_[j] > lower_[j] || value_[j] != 0.0) stay.push_back(j);
        if (stay.size() > num_columns() * 4 / 5) return;
        std::vector<std::size_t> all(stay);
        for (std::size_t r = 0; r < num_rows(); ++r) all.push_back(num_columns() + r);
        keep_variables(all);
        part_ = part_->narrowed(stay, rows_);
    }

    // Keeps these columns and logicals, in order, all that are basic among them.
    void keep_variables(const std::vector<std::size_t>& all) {
        std::vector<std::size_t> places(width(), width());
        for (std::size_t a = 0; a < all.size(); ++a) places[all[a]] = a;
        for (std::size_t& b : basis_) b = places[b];
        const auto chosen = [&all](auto& values) {
            std::remove_reference_t<decltype(values)> found;
            for (std::size_t one : all) found.push_back(values[one]);
            values.swap(found);
        };
        chosen(lower_);
        chosen(upper_);
        chosen(value_);
        chosen(reduced_);
        chosen(is_basic_);
        chosen(moves_);
    }
};

}  // namespace sutler
