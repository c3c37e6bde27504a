// What Python sees of the tree: one function over NumPy arrays.
#include <pybind11/functional.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <stdexcept>
#include <string>

#include "tree.hpp"

namespace py = pybind11;
using sutler::Numbers;
using Array = py::array_t<double, py::array::c_style | py::array::forcecast>;
using Whole = py::array_t<std::int16_t, py::array::c_style | py::array::forcecast>;

namespace {

Numbers vector_of(const Array& array, std::size_t expected, const char* name) {
    if (array.ndim() != 1 || static_cast<std::size_t>(array.shape(0)) != expected)
        throw std::invalid_argument(std::string(name) + ": expected " + std::to_string(expected) + " numbers");
    Numbers found(array.data(), array.data() + expected);
    for (double one : found)
        if (std::isnan(one)) throw std::invalid_argument(std::string(name) + ": not a number");
    return found;
}

std::vector<Numbers> lines_of(const Array& array, std::size_t columns, const char* name) {
    if (array.ndim() != 2 || static_cast<std::size_t>(array.shape(1)) != columns)
        throw std::invalid_argument(std::string(name) + ": expected lines of " + std::to_string(columns) + " numbers");
    std::vector<Numbers> found;
    for (py::ssize_t i = 0; i < array.shape(0); ++i) {
        found.emplace_back(array.data(i, 0), array.data(i, 0) + columns);
        for (double one : found.back())
            if (!std::isfinite(one)) throw std::invalid_argument(std::string(name) + ": not a finite number");
    }
    return found;
}

std::vector<sutler::Counts> counts_of(const Whole& array, std::size_t columns) {
    if (array.ndim() != 2 || static_cast<std::size_t>(array.shape(1)) != columns)
        throw std::invalid_argument("counts: expected lines of " + std::to_string(columns) + " numbers");
    std::vector<sutler::Counts> found;
    for (py::ssize_t i = 0; i < array.shape(0); ++i)
        found.emplace_back(array.data(i, 0), array.data(i, 0) + columns);
    return found;
}

sutler::Outcome search(
    const Array& cost, const Array& tilt, const Array& lower, const Array& upper, const Array& is_integer,
    const Array& is_awake, const Array& matrix, const Array& row_lower, const Array& row_upper, const Whole& counts,
    const sutler::Options& options, const py::function& separate, const py::function& goes_on) {
    const auto columns = static_cast<std::size_t>(cost.size());
    sutler::Program program;
    program.cost = vector_of(cost, columns, "cost");
    program.tilted_cost = vector_of(tilt, columns, "tilt");
    for (std::size_t j = 0; j < columns; ++j) {
        program.tilted_cost[j] += program.cost[j];
        program.largest_cost = std::max(program.largest_cost, std::fabs(program.cost[j]));
    }
    program.lower = vector_of(lower, columns, "lower");
    program.upper = vector_of(upper, columns, "upper");
    for (double one : vector_of(is_integer, columns, "is_integer")) program.is_integer.push_back(one != 0.0);
    std::vector<char> awake;
    for (double one : vector_of(is_awake, columns, "is_awake")) {
        const std::size_t j = awake.size();
        if (one == 0.0 && !(program.is_integer[j] && program.lower[j] == 0.0 && std::isfinite(program.upper[j])))
            throw std::invalid_argument("is_awake: what sleeps is a whole number from 0 to some bound");
        awake.push_back(one != 0.0);
    }
    std::vector<Numbers> lines = lines_of(matrix, columns, "matrix");
    const Numbers least = vector_of(row_lower, lines.size(), "row_lower");
    const Numbers most = vector_of(row_upper, lines.size(), "row_upper");
    for (std::size_t r = 0; r < lines.size(); ++r) program.add_row(std::move(lines[r]), least[r], most[r]);
    const auto ask = [&](const Numbers& point, sutler::Place place) {
        const py::tuple answer =
            separate(Array(static_cast<py::ssize_t>(point.size()), point.data()), static_cast<int>(place));
        sutler::Told told;
        told.value = answer[0].cast<double>();
        std::vector<Numbers> rows = lines_of(answer[1].cast<Array>(), columns, "cuts");
        const Numbers sides = vector_of(answer[2].cast<Array>(), rows.size(), "sides of cuts");
        for (std::size_t i = 0; i < rows.size(); ++i) told.cuts.push_back({std::move(rows[i]), sides[i]});
        return told;
    };
    const auto on = [&](double bound, std::int64_t nodes) {
        if (PyErr_CheckSignals() != 0) throw py::error_already_set();
        return goes_on(bound, nodes).cast<bool>();
    };
    return sutler::Tree(program, counts_of(counts, columns), awake, options, ask, on).search();
}

}  // namespace

PYBIND11_MODULE(_tree, module) {
    module.doc() = "Branch and cut over fleets; see tree.hpp.";
    py::class_<sutler::Options>(module, "Options")
        .def(py::init<double, double, std::int64_t, int, int>(), py::kw_only(), py::arg("cutoff"), py::arg("gap"),
             py::arg("most_nodes"), py::arg("root_rounds"), py::arg("strong_candidates") = 8);
    py::class_<sutler::Outcome>(module, "Outcome")
        .def_readonly("bound", &sutler::Outcome::bound)
        .def_readonly("has_ended", &sutler::Outcome::has_ended)
        .def_readonly("nodes", &sutler::Outcome::nodes)
        .def_readonly("problems", &sutler::Outcome::problems);
    module.def("search", &search);
}
