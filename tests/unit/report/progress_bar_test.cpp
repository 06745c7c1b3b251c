#include "report/progress_bar.hpp"

#include <pty.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "core/log.hpp"
#include "support/catch.hpp"

using namespace lockstep;

namespace {
std::atomic<long> allocations{0};
}

// Counts the allocations of update().
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t& /*unused*/) noexcept {
  ++allocations;
  return std::malloc(size == 0 ? 1 : size);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

constexpr Terminal utf8_terminal{.is_interactive = true, .utf8 = true};

/// A bar with a clock that only the test advances.
struct Stage {
  explicit Stage(const ProgressOptions& options) : bar(options, out, [this] { return now; }) {}

  std::string take() {
    std::string text = out.str();
    out.str("");
    return text;
  }

  std::ostringstream out;
  double now = 1000;
  ProgressBar bar;
};

/// The line as it appears on a terminal: the last redraw without backspaces, escapes and padding.
std::string visible(const std::string& drawn) {
  std::string text = drawn.substr(drawn.rfind('\r') + 1);
  for (std::size_t at = 0; (at = text.find('\x1b')) != std::string::npos;) text.erase(at, text.find('m', at) - at + 1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\n')) text.pop_back();
  return text;
}

std::size_t columns(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string cells(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "━";
  return text;
}

}  // namespace

TEST_CASE("the bar matches Keras", "[progress]") {
  Stage stage({.epochs = 10, .steps = 70, .verbose = 1, .terminal = utf8_terminal});
  stage.bar.begin_epoch(2);
  CHECK(stage.take() == "Epoch 3/10\n");

  const MetricValue metrics[] = {{"loss", 2.25}, {"accuracy", 0.125}};
  stage.now += 0.2;
  stage.bar.update(1, metrics);
  // 69 steps of 0.2 s remain: 13.8 s, shown as 13.
  CHECK(stage.take() == "\r\x1b[1m 1/70\x1b[0m \x1b[32m\x1b[0m\x1b[37m" + cells(20) +
                            "\x1b[0m \x1b[1m13s\x1b[0m 200ms/step - accuracy: 0.1250 - loss: 2.2500");

  stage.now += 0.34;
  stage.bar.update(35, metrics);
  const std::string half = stage.take();
  CHECK(visible(half) == "35/70 " + cells(20) + " 0s 10ms/step - accuracy: 0.1250 - loss: 2.2500");
  CHECK(half.find("\x1b[32m" + cells(10) + "\x1b[0m\x1b[37m" + cells(10) + "\x1b[0m") != std::string::npos);

  stage.now += 0.35;
  stage.bar.update(70, metrics);
  stage.take();
  stage.now += 1.2;  // validation
  stage.bar.end_epoch({{"accuracy", 0.5}, {"loss", 1.5}, {"val_accuracy", 0.25}, {"val_loss", 1.75}});
  const std::string end = stage.take();
  CHECK(visible(end) ==
        "70/70 " + cells(20) +
            " 2s 10ms/step - accuracy: 0.5000 - loss: 1.5000 - val_accuracy: 0.2500 - val_loss: 1.7500");
  CHECK(end.back() == '\n');
}

TEST_CASE("a redraw overwrites the previous line", "[progress]") {
  Stage stage({.steps = 1000, .terminal = utf8_terminal});
  stage.bar.begin_epoch(0);
  CHECK(stage.take().empty());  // a single epoch has no number
  const MetricValue wide[] = {{"loss", 123456.0}};
  const MetricValue narrow[] = {{"loss", 1.0}};
  stage.now += 90;
  stage.bar.update(1, wide);
  const std::string first = visible(stage.take());
  CHECK(first == "   1/1000 " + cells(20) + " 24:58:30 90s/step - loss: 123456.0000");
  stage.now += 0.1;
  stage.bar.update(2, narrow);
  const std::string second = stage.take();
  CHECK(second.starts_with(std::string(columns(first), '\b') + "\r"));
  CHECK(second.ends_with(std::string(columns(first) - columns(visible(second)), ' ')));
}

TEST_CASE("a message begins a new line, and the bar goes on below it", "[progress]") {
  int controller = -1;
  int terminal = -1;
  REQUIRE(openpty(&controller, &terminal, nullptr, nullptr, nullptr) == 0);
  const int standard_error = dup(STDERR_FILENO);
  REQUIRE(dup2(terminal, STDERR_FILENO) == STDERR_FILENO);

  Stage stage({.steps = 10, .terminal = utf8_terminal});
  stage.bar.begin_epoch(0);
  stage.now += 1;
  stage.bar.update(1, {});
  static_cast<void>(stage.take());
  log_info("first");
  log_info("second");
  stage.now += 1;
  stage.bar.update(2, {});
  dup2(standard_error, STDERR_FILENO);

  close(terminal);  // the last one open: read() fails once it has handed over all that was written

  std::string written;
  std::array<char, 100> piece{};
  ssize_t count = 0;
  while ((count = read(controller, piece.data(), piece.size())) > 0) {
    written.append(piece.data(), static_cast<std::size_t>(count));
  }
  CHECK(written == "\r\nfirst\r\nsecond\r\n");
  CHECK(stage.take().starts_with('\r'));  // no line to go back on
  for (const int descriptor : {controller, standard_error}) close(descriptor);
}

TEST_CASE("times are shown in Keras' units", "[progress]") {
  const auto line = [](double seconds_per_step, int steps) {
    Stage stage({.steps = steps, .terminal = utf8_terminal});
    stage.bar.begin_epoch(0);
    stage.now += 1;
    stage.bar.update(1, {});
    const double drawn_at = stage.now;
    for (int step = 2; stage.now < drawn_at + 0.06; ++step) {  // until the next redraw is due
      stage.now += seconds_per_step;
      stage.bar.update(step, {});
    }
    return visible(stage.take());
  };
  CHECK(line(2, 102) == "  2/102 " + cells(20) + " 3:20 2s/step");
  CHECK(line(0.5, 102) == "  2/102 " + cells(20) + " 50s 500ms/step");
  CHECK(line(60, 102) == "  2/102 " + cells(20) + " 1:40:00 60s/step");
  CHECK(line(0.0005, 1000).ends_with(" 500us/step"));
}

TEST_CASE("small, negative and non-finite metrics are formatted", "[progress]") {
  const auto shown = [](double value) {
    Stage stage({.steps = 1});
    stage.bar.begin_epoch(0);
    stage.now += 1;
    stage.bar.update(1, {});
    stage.bar.end_epoch({{"loss", value}});
    const std::string line = stage.take();
    return line.substr(line.find("loss: ") + 6);
  };
  CHECK(shown(0.0011) == "0.0011\n");
  CHECK(shown(0.001) == "1.0000e-03\n");
  CHECK(shown(0) == "0.0000e+00\n");
  CHECK(shown(-2.5) == "-2.5000\n");
  CHECK(shown(std::numeric_limits<double>::quiet_NaN()).find("nan") != std::string::npos);
  CHECK(shown(std::numeric_limits<double>::max()).size() == 309 + 5 + 1);
}

TEST_CASE("steps between redraws allocate and print nothing", "[progress]") {
  Stage stage({.steps = 1000, .terminal = utf8_terminal});
  stage.bar.begin_epoch(0);
  const MetricValue metrics[] = {{"loss", 1.0}, {"accuracy", 0.5}};
  stage.bar.update(1, metrics);
  CHECK_FALSE(stage.take().empty());
  const long before = allocations;
  for (int step = 2; step < 50; ++step) {
    stage.now += 0.001;
    stage.bar.update(step, metrics);
  }
  CHECK(allocations == before);
  CHECK(stage.take().empty());
  stage.now += 0.01;
  stage.bar.update(50, metrics);
  CHECK(visible(stage.take()).starts_with("  50/1000"));
}

TEST_CASE("verbose=2 and non-terminals get one line per epoch", "[progress]") {
  const ProgressOptions lines = GENERATE(
      ProgressOptions{.epochs = 2, .steps = 70, .verbose = 2, .terminal = utf8_terminal},
      ProgressOptions{.epochs = 2, .steps = 70, .verbose = 1, .terminal = {.is_interactive = false, .utf8 = true}});
  Stage stage(lines);
  for (int epoch = 0; epoch < 2; ++epoch) {
    stage.bar.begin_epoch(epoch);
    for (int step = 1; step <= 70; ++step) {
      stage.now += 0.01;
      stage.bar.update(step, {});
    }
    stage.bar.end_epoch({{"accuracy", 0.082}, {"loss", 2.5511}, {"val_loss", 2.4562}});
  }
  const std::string line = "70/70 - 1s - 10ms/step - accuracy: 0.0820 - loss: 2.5511 - val_loss: 2.4562\n";
  CHECK(stage.take() == "Epoch 1/2\n" + line + "Epoch 2/2\n" + line);
}

TEST_CASE("verbose=0 is silent", "[progress]") {
  Stage stage({.epochs = 2, .steps = 3, .verbose = 0, .terminal = utf8_terminal});
  stage.bar.begin_epoch(0);
  stage.now += 1;
  stage.bar.update(1, {});
  stage.bar.end_epoch({{"loss", 1}});
  CHECK(stage.take().empty());
}

TEST_CASE("a locale without UTF-8 gets equals signs", "[progress]") {
  Stage stage({.steps = 2, .terminal = {.is_interactive = true, .utf8 = false}});
  stage.bar.begin_epoch(0);
  stage.now += 1;
  stage.bar.update(1, {});
  CHECK(visible(stage.take()) == "1/2 ==================== 1s 1s/step");
}

TEST_CASE("an unknown step count becomes known at the end", "[progress]") {
  Stage stage({.steps = 0, .terminal = utf8_terminal});
  stage.bar.begin_epoch(0);
  stage.now += 1;
  stage.bar.update(1, {});
  CHECK(visible(stage.take()) == "      1/Unknown 1s 1s/step");
  stage.now += 2;
  stage.bar.update(2, {});
  stage.take();
  stage.bar.end_epoch({});
  CHECK(visible(stage.take()) == "2/2 " + cells(20) + " 3s 2s/step");
}

TEST_CASE("an epoch that ended early shows the steps it ran", "[progress]") {
  Stage stage({.steps = 70, .verbose = 2});
  stage.bar.begin_epoch(0);
  stage.now += 1;
  stage.bar.update(1, {});
  stage.bar.end_epoch({});
  CHECK(stage.take() == "1/70 - 1s - 1s/step\n");
}

TEST_CASE("the locale is determined as by the C library", "[terminal]") {
  CHECK_FALSE(is_utf8_locale({}));
  CHECK(is_utf8_locale({{"LANG", "C.UTF-8"}}));
  CHECK(is_utf8_locale({{"LANG", "de_DE.utf8"}}));
  CHECK_FALSE(is_utf8_locale({{"LC_ALL", "C"}, {"LANG", "en_US.UTF-8"}}));
  CHECK(is_utf8_locale({{"LC_ALL", ""}, {"LC_CTYPE", "en_US.UTF-8"}, {"LANG", "C"}}));
}
