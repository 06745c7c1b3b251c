// See report_html.hpp.
#include "report/report_html.hpp"

#include "core/format_number.hpp"
#include "report/line_chart.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

namespace {

constexpr std::string_view style = R"css(
:root { color-scheme: light dark; --ground: #ffffff; --ink: #1c1e21; --faint: #6b7076; --rule: #e3e5e8;
        --train: #1f6feb; --val: #d9580d; --bar: #9db8e6; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #14171a; --ink: #e6e8ea; --faint: #9aa1a8; --rule: #2b3036;
          --train: #6ea8fe; --val: #ff9d5c; --bar: #35558a; } }
body { background: var(--ground); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; max-width: 62rem;
       margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
.faint { color: var(--faint); }
.figures { display: flex; flex-wrap: wrap; gap: 1.5rem; margin: 1.2rem 0; }
.figures b { display: block; font-size: 1.5rem; font-weight: 600; }
.charts { display: flex; flex-wrap: wrap; gap: 1rem; }
.chart { max-width: 100%; height: auto; }
.chart .title { fill: var(--ink); font-size: 13px; font-weight: 600; }
.chart .tick { fill: var(--faint); font-size: 11px; }
.chart .grid { stroke: var(--rule); }
.chart .line { fill: none; stroke-width: 2; }
.train { stroke: var(--train); } .dot.train { fill: var(--train); }
.val { stroke: var(--val); } .dot.val { fill: var(--val); }
.scroll { overflow-x: auto; }
.mistakes { display: flex; flex-wrap: wrap; gap: .8rem; } .mistakes figure { margin: 0; text-align: center; }
.mistakes img { width: 4.5rem; height: auto; image-rendering: pixelated; display: block; }
table { border-collapse: collapse; } th, td { text-align: left; padding: .15rem .8rem .15rem 0; vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.bars td.bar { width: 18rem; } .bars .bar span { display: block; height: .8rem; margin-top: .35rem; background: var(--bar); }
th { font-weight: 500; color: var(--faint); }
)css";

std::string text_of(const NamedValues::mapped_type& value) {
  struct Texts {
    std::string operator()(bool is) const { return is ? "yes" : "no"; }
    std::string operator()(double number) const { return std::isnan(number) ? "" : fmt::format("{:.6g}", number); }
    std::string operator()(const std::string& text) const { return text; }
    std::string operator()(std::int64_t number) const { return std::to_string(number); }
    std::string operator()(std::uint64_t number) const { return std::to_string(number); }
  };
  return std::visit(Texts{}, value);
}

std::string number(double value) { return std::isfinite(value) ? fmt::format("{:.4g}", value) : "not finite"; }

/// "1,664,809", "145", "12.3", or "" if it is not known.
std::string amount(double value) {
  if (std::isnan(value)) return "";
  if (!(value >= 100 && value < 1e15)) return fmt::format("{:.3g}", value);
  std::string digits = fmt::format("{:.0f}", value);
  for (std::size_t at = digits.size(); at > 3;) digits.insert(at -= 3, ",");
  return digits;
}

double median(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::ranges::sort(values);
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

constexpr std::string_view validation = "val_";

/// The names of the logs without those of validation, the loss first.
std::vector<std::string> names_of(const History& history) {
  std::set<std::string> found;
  for (const EpochRecord& epoch : history.epochs) {
    for (const auto& [name, value] : epoch.logs)
      found.insert(name.starts_with(validation) ? name.substr(validation.size()) : name);
  }
  std::vector<std::string> names;
  if (found.erase("loss") > 0) names.emplace_back("loss");
  names.insert(names.end(), found.begin(), found.end());
  return names;
}

std::vector<double> values_of(const History& history, const std::string& name) {
  std::vector<double> values;
  for (const EpochRecord& epoch : history.epochs) {
    const auto found = epoch.logs.find(name);
    values.push_back(found == epoch.logs.end() ? std::numeric_limits<double>::quiet_NaN() : found->second);
  }
  return values;
}

bool has(const History& history, const std::string& name) {
  return std::ranges::any_of(history.epochs, [&](const EpochRecord& epoch) { return epoch.logs.contains(name); });
}

std::string charts(const History& history) {
  if (history.epochs.empty()) return {};
  std::string html = "<h2>Training</h2>\n<div class=\"charts\">\n";
  for (const std::string& name : names_of(history)) {
    std::vector<ChartLine> lines;
    if (has(history, name)) lines.push_back({"training", "train", values_of(history, name)});
    const std::string val = std::string(validation) + name;
    if (has(history, val)) lines.push_back({"validation", "val", values_of(history, val)});
    html += line_chart(name, lines, history.epochs.front().epoch + 1) + "\n";
  }
  return html + "</div>\n";
}

std::string figure(std::string_view what, const std::string& value) {
  return fmt::format("<div><b>{}</b><span class=\"faint\">{}</span></div>\n", html_escaped(value), html_escaped(what));
}

std::string figures(const RunReport& report) {
  std::string html = "<div class=\"figures\">\n";
  for (const auto& [name, value] : report.evaluation) html += figure("test " + name, number(value));
  std::vector<double> speeds;
  double seconds = 0;
  for (const EpochRecord& epoch : report.history.epochs) {
    if (std::isfinite(epoch.examples_per_second)) speeds.push_back(epoch.examples_per_second);
    seconds += epoch.seconds;
  }
  if (!speeds.empty()) html += figure("examples per second (median epoch)", amount(median(speeds)));
  if (std::isfinite(seconds) && !report.history.epochs.empty()) html += figure("seconds in epochs", amount(seconds));
  if (std::isfinite(report.timing.peak_memory_mb))
    html += figure("MB, the chief's peak memory", amount(report.timing.peak_memory_mb));
  return html + "</div>\n";
}

/// Bars of milliseconds, the longest first.
std::string bars(const std::string& title, const std::map<std::string, double>& milliseconds, std::size_t most) {
  std::vector<std::pair<std::string, double>> rows;
  for (const auto& [name, ms] : milliseconds) {
    if (name != "total" && std::isfinite(ms)) rows.emplace_back(name, ms);
  }
  if (rows.empty()) return {};
  std::ranges::stable_sort(rows, std::greater<>(), [](const auto& row) { return row.second; });
  const double longest = std::max(rows.front().second, 1e-12);
  rows.resize(std::min(rows.size(), most));
  std::string html = "<h2>" + html_escaped(title) + "</h2>\n<table class=\"bars\">\n";
  for (const auto& [name, ms] : rows) {
    html += fmt::format(
        "<tr><td>{}</td><td class=\"number\">{:.3g} ms</td><td class=\"bar\"><span style=\"width: "
        "{:.1f}%\"></span></td></tr>\n",
        html_escaped(name), ms, 100 * ms / longest);
  }
  return html + "</table>\n";
}

std::string epochs(const History& history) {
  if (history.epochs.empty()) return {};
  std::vector<std::string> columns;
  for (const std::string& name : names_of(history)) {
    for (const std::string& column : {name, std::string(validation) + name}) {
      if (has(history, column)) columns.push_back(column);
    }
  }
  std::string html = "<h2>Epochs</h2>\n<details><summary>" + count_of(std::ssize(history.epochs), "epoch") +
                     "</summary>\n<div class=\"scroll\"><table>\n<tr><th class=\"number\">epoch</th>";
  for (const std::string& column : columns) html += "<th class=\"number\">" + html_escaped(column) + "</th>";
  html += "<th class=\"number\">seconds</th><th class=\"number\">examples/s</th></tr>\n";
  for (const EpochRecord& epoch : history.epochs) {
    html += fmt::format("<tr><td class=\"number\">{}</td>", epoch.epoch + 1);
    for (const std::string& column : columns) {
      const auto found = epoch.logs.find(column);
      html += "<td class=\"number\">" + (found == epoch.logs.end() ? "" : number(found->second)) + "</td>";
    }
    html += fmt::format("<td class=\"number\">{}</td><td class=\"number\">{}</td></tr>\n", amount(epoch.seconds),
                        amount(epoch.examples_per_second));
  }
  return html + "</table></div></details>\n";
}

std::string table(const std::string& title, const NamedValues& values, bool is_open) {
  if (values.empty()) return {};
  std::string html = "<h2>" + html_escaped(title) + "</h2>\n";
  if (!is_open) html += "<details><summary>" + fmt::format("all {}", std::ssize(values)) + "</summary>\n";
  html += "<table>\n";
  for (const auto& [name, value] : values)
    html += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", html_escaped(name), html_escaped(text_of(value)));
  return html + "</table>\n" + (is_open ? "" : "</details>\n");
}

/// When which workers trained, and why they stopped: a bar for each generation, on one axis of time.
std::string generations(const std::vector<GenerationRecord>& records) {
  if (records.size() < 2) return {};
  const double begin = records.front().began;
  const double span = std::max(records.back().ended - begin, 1e-3);
  std::string html =
      "<h2>Workers over time</h2>\n<div class=\"scroll\"><table class=\"bars\">\n<tr><th>generation</th><th "
      "class=\"number\">workers</th><th>began (UTC)</th><th class=\"number\">waited</th><th "
      "class=\"number\">lasted</th><th></th><th>ended</th></tr>\n";
  double free_since = begin;
  for (const GenerationRecord& each : records) {
    const double seconds = std::max(each.ended - each.began, 0.0);
    html += fmt::format(
        "<tr><td>{}</td><td class=\"number\">{}</td><td>{:%d %b %H:%M:%S}</td><td class=\"number\">{:.1f} s</td>"
        "<td class=\"number\">{:.1f} s</td><td class=\"bar\"><span style=\"margin-left: {:.1f}%; width: {:.1f}%\">"
        "</span></td><td>{}</td></tr>\n",
        each.generation, each.ranks, fmt::gmtime(static_cast<std::time_t>(each.began)),
        std::max(each.began - free_since, 0.0), seconds, 100 * std::clamp((each.began - begin) / span, 0.0, 1.0),
        100 * std::clamp(seconds / span, 0.0, 1.0), html_escaped(each.reason));
    free_since = each.ended;
  }
  return html + "</table></div>\n";
}

/// Pictures beside their class and the predicted one.
std::string mistakes(const Mistakes& found) {
  if (found.shown.empty()) return {};
  std::string html = fmt::format(
      "<h2>Misclassified examples</h2>\n<p class=\"faint\">{} among the first {} examples of the "
      "test set: the true class &rarr; the predicted one</p>\n<div class=\"mistakes\">\n",
      count_of(std::ssize(found.shown), "mistake"), amount(static_cast<double>(found.examined)));
  for (const Mistake& each : found.shown) {
    html += fmt::format(
        "<figure><img alt=\"\" width=\"{}\" height=\"{}\" src=\"{}\"><figcaption>{} &rarr; {}"
        "</figcaption></figure>\n",
        each.picture.width, each.picture.height, data_url(each.picture), each.expected, each.predicted);
  }
  return html + "</div>\n";
}

std::string workers_of(const RunReport& report) {
  const auto found = report.world.find("workers");
  const auto* const count = found == report.world.end() ? nullptr : std::get_if<std::int64_t>(&found->second);
  return count == nullptr ? "" : ", " + count_of(*count, "worker");
}

}  // namespace

std::string report_html(const RunReport& report) {
  const std::string title =
      report.model + ": " + count_of(std::ssize(report.history.epochs), "epoch") + workers_of(report);
  std::string html =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n" +
      std::string(report.is_live ? "<meta http-equiv=\"refresh\" content=\"5\">\n" : "") + "<title>" +
      html_escaped(title) + "</title>\n<style>" + std::string(style) + "</style>\n</head>\n<body>\n<h1>" +
      html_escaped(title) + "</h1>\n";
  if (report.is_live)
    html += "<p class=\"faint\">Training goes on; this page loads itself again every 5 seconds.</p>\n";
  if (!report.file.empty()) html += "<p class=\"faint\">Saved as " + html_escaped(report.file) + "</p>\n";
  html += figures(report) + charts(report.history) + mistakes(report.mistakes);
  html += bars("Where a step's time goes", report.timing.profile_ms_per_step, 20);
  html += bars("Slowest operations of a step", report.timing.operations_ms_per_step, 12);
  html += generations(report.generations) + epochs(report.history);
  html += table("Workers and machine", report.world, true);
  html += table("Options", report.config, false);
  html += table("Versions", report.versions, false);
  return html + "</body>\n</html>\n";
}

}  // namespace lockstep
