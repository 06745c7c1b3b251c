#include "report/report_html.hpp"

#include "report/line_chart.hpp"
#include "support/catch.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

using namespace lockstep;

namespace {

std::size_t count(std::string_view text, std::string_view word) {
  std::size_t found = 0;
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

RunReport small_report() {
  RunReport report;
  report.model = "keras_mnist";
  report.file = "model.h5";
  for (int epoch = 0; epoch < 3; ++epoch)
    report.history.epochs.push_back(
        {epoch, {{"loss", 1.0 / (epoch + 1)}, {"val_loss", 0.5}, {"accuracy", 0.9}}, 2, 12345});
  report.evaluation = {{"accuracy", 0.875}};
  report.world = {{"workers", std::int64_t{2}}};
  report.timing.profile_ms_per_step = {{"forward", 1.5}, {"backward", 3}, {"total", 4.5}};
  return report;
}

}  // namespace

TEST_CASE("a report shows curves, times and options on one page", "[report_html]") {
  const std::string page = report_html(small_report());
  CHECK(page.starts_with("<!DOCTYPE html>"));
  CHECK(page.ends_with("</html>\n"));
  CHECK(page.find("<title>keras_mnist: 3 epochs, 2 workers</title>") != std::string::npos);
  CHECK(count(page, "<svg") == 2);                         // loss and accuracy
  CHECK(count(page, "<polyline") == 3);                    // of the loss: training and validation
  CHECK(page.find("<b>12,345</b>") != std::string::npos);  // examples per second
  CHECK(page.find("<b>0.875</b><span class=\"faint\">test accuracy") != std::string::npos);
  CHECK(page.find("backward</td><td class=\"number\">3 ms") < page.find("forward</td><td class=\"number\">1.5 ms"));
  CHECK(page.find("total") == std::string::npos);
  CHECK(page.find("prefers-color-scheme: dark") != std::string::npos);
}

TEST_CASE("a report shows which workers trained when", "[report_html]") {
  RunReport report = small_report();
  report.generations = {{1, 3, 1000, 1010, "generation 1 ended: worker 2 <left>"}, {2, 2, 1015, 1020, ""}};
  const std::string page = report_html(report);
  CHECK(page.find("Workers over time") != std::string::npos);
  CHECK(page.find("<td>1</td><td class=\"number\">3</td><td>01 Jan 00:16:40</td><td class=\"number\">0.0 s</td><td "
                  "class=\"number\">10.0 s</td>") != std::string::npos);
  CHECK(page.find("margin-left: 75.0%; width: 25.0%") != std::string::npos);  // after a wait of 5 s
  CHECK(page.find("worker 2 &lt;left&gt;") != std::string::npos);
  report.generations.resize(1);
  CHECK(report_html(report).find("Workers over time") == std::string::npos);
}

TEST_CASE("a live report loads itself again", "[report_html]") {
  RunReport report = small_report();
  CHECK(report_html(report).find("http-equiv") == std::string::npos);
  report.is_live = true;
  CHECK(report_html(report).find("<meta http-equiv=\"refresh\"") != std::string::npos);
}

TEST_CASE("a report loads nothing and runs nothing", "[report_html]") {
  const std::string page = report_html(small_report());
  for (const char* word : {"<script", "http:", "https:", "src=", "href=", "url(", "@import"}) {
    CAPTURE(word);
    CHECK(page.find(word) == std::string::npos);
  }
}

TEST_CASE("a report shows misclassified pictures, whose bytes are on the page", "[report_html]") {
  RunReport report = small_report();
  CHECK(report_html(report).find("Misclassified") == std::string::npos);
  report.mistakes = {.shown = {{{.height = 1, .width = 1, .values = {255}}, 7, 1}}, .examined = 1000};
  const std::string page = report_html(report);
  CHECK(page.find("1 mistake among the first 1,000 examples of the test set") != std::string::npos);
  CHECK(page.find("<figcaption>7 &rarr; 1</figcaption>") != std::string::npos);
  CHECK(count(page, "src=") == count(page, "src=\"data:image/bmp;base64,"));
}

TEST_CASE("a picture is a bitmap from the lowest row, blue first, in rows of whole words", "[report_html]") {
  const Picture picture{.height = 2, .width = 1, .channels = 3, .values = {255, 0, 0, 0, 0, 255}};  // red above blue
  CHECK(data_url(picture) ==
        "data:image/bmp;base64,Qk0+AAAAAAAAADYAAAAoAAAAAQAAAAIAAAABABgAAAAAAAgAAAAAAAAAAAAAAAAAAAAAAAAA/wAAAAAA/wA=");
}

TEST_CASE("texts in a report are escaped", "[report_html]") {
  RunReport report = small_report();
  report.model = "<b>&\"it's\"";
  report.config = {{"model_dir", std::string("<script>alert(1)</script>")}};
  report.history.epochs.front().logs["<i>"] = 1;
  const std::string page = report_html(report);
  CHECK(page.find("&lt;b&gt;&amp;&quot;it&#39;s&quot;") != std::string::npos);
  CHECK(page.find("<script") == std::string::npos);
  CHECK(page.find("<i>") == std::string::npos);
}

TEST_CASE("values that are not finite leave gaps", "[report_html]") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const std::string chart = line_chart("loss", {{"training", "train", {1, 2, nan, 3, infinity, 4, 5}}}, 1);
  CHECK(count(chart, "<polyline") == 2);
  CHECK(count(chart, "<circle") == 5);
  CHECK(chart.find("nan") == std::string::npos);
  CHECK(chart.find("inf") == std::string::npos);
  CHECK(line_chart("loss", {{"training", "train", {nan}}}, 1).find("no finite value") != std::string::npos);
  CHECK(count(line_chart("loss", {{"training", "train", {7}}}, 1), "<circle") == 1);
  const std::string constant = line_chart("loss", {{"training", "train", {0, 0, 0}}}, 1);
  CHECK(constant.find("nan") == std::string::npos);
  CHECK(report_html({}).ends_with("</html>\n"));  // a run without epochs
}
