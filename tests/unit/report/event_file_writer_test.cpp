// Event files match records of TensorBoard's own writer byte for byte. Write failures are reported.
#include "report/event_file_writer.hpp"
#include "report/event_record.hpp"

#include "support/catch.hpp"
#include "support/files.hpp"
#include "support/messages.hpp"
#include "support/scratch_directory.hpp"

#include <lockstep/core/error.hpp>

#include <sys/resource.h>
#include <unistd.h>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

namespace fs = std::filesystem;

// Both with a wall time of 1 s.
constexpr std::string_view version_hex =
    "1800000000000000a37f4b2209000000000000f03f1a0d627261696e2e4576656e743a3286bf577a";
constexpr std::string_view epoch_loss_hex =
    "34000000000000005e33175c09000000000000f03f10002a270a250a0a65706f63685f6c6f73734a0b0a090a077363616c617273420a0801"
    "12002a04000020406b3d3fe5";

std::string hex(std::string_view bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    text += digits[static_cast<unsigned char>(byte) >> 4U];
    text += digits[static_cast<unsigned char>(byte) & 15U];
  }
  return text;
}

/// Limits the size of all files during its lifetime, which looks like a full disk to a writer.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &earlier_);
    const rlimit limit{bytes, earlier_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &earlier_);
    static_cast<void>(std::signal(SIGXFSZ, handler_));
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit earlier_{};
};

}  // namespace

TEST_CASE("the checksum is the masked CRC-32C", "[events]") {
  CHECK(masked_crc32c("123456789") == 0xC78AB0E5U);
  CHECK(masked_crc32c("") == 0xA282EAD8U);
}

TEST_CASE("records match TensorBoard's writer", "[events]") {
  CHECK(hex(version_record(1.0)) == version_hex);
  CHECK(hex(scalar_record("epoch_loss", 2.5, 0, 1.0)) == epoch_loss_hex);
}

TEST_CASE("long tags and large steps are encoded correctly", "[events]") {
  const std::string tag(300, 'x');
  const std::string record = scalar_record(tag, -0.1, (std::int64_t{1} << 40) + 5, 2.0);
  // Wall time, step (six bytes of seven bits each), and lengths that take two bytes.
  CHECK(hex(record.substr(12, 16)) ==
        "0900000000000000"
        "40"
        "10"
        "858080808020");
  CHECK(hex(record.substr(28, 3)) == "2acb02");  // 331 bytes of summary
  CHECK(hex(record.substr(31, 3)) == "0ac802");  // 328 of the point
  CHECK(hex(record.substr(34, 3)) == "0aac02");  // 300 of the tag
  CHECK(record.substr(37, 300) == tag);
  CHECK(hex(record.substr(record.size() - 8, 4)) == "cdccccbd");  // -0.1F
  REQUIRE(static_cast<unsigned char>(record[0]) + 256 * record[1] + 16 == static_cast<int>(record.size()));

  const std::string nan = scalar_record("t", std::numeric_limits<double>::quiet_NaN(), 0, 2.0);
  CHECK(hex(nan.substr(nan.size() - 8, 4)) == "0000c07f");
}

TEST_CASE("a file holds its version and then its scalars", "[events]") {
  const ScratchDirectory scratch;
  const Clock one = [] { return 1.0; };
  fs::path path;
  {
    EventFileWriter file(scratch / "logs/train", one);
    path = file.path();
    CHECK(hex(text_of(path)) == version_hex);
    file.add_scalar("epoch_loss", 2.5, 0, 1.0);
    file.flush();
    CHECK(hex(text_of(path)) == std::string(version_hex) + std::string(epoch_loss_hex));
    file.add_scalar("epoch_loss", 2.5, 0, 1.0);
  }
  CHECK(hex(text_of(path)) == std::string(version_hex) + std::string(epoch_loss_hex) + std::string(epoch_loss_hex));
}

TEST_CASE("files have TensorFlow's names and never collide", "[events]") {
  const ScratchDirectory scratch;
  const Clock clock = [] { return 1'700'000'000.75; };
  const EventFileWriter first(scratch / "logs", clock);
  const EventFileWriter second(scratch / "logs", clock);
  const std::string name = first.path().filename().string();
  CHECK(name.starts_with("events.out.tfevents.1700000000."));
  CHECK(name.ends_with("." + std::to_string(getpid()) + ".0.v2"));
  CHECK(second.path().string().ends_with("." + std::to_string(getpid()) + ".1.v2"));
  const EventFileWriter early(scratch / "logs", [] { return 1.0; });
  CHECK(early.path().filename().string().starts_with("events.out.tfevents.0000000001."));
}

TEST_CASE("an unwritable directory is named", "[events]") {
  const ScratchDirectory scratch;
  std::ofstream(scratch / "file") << "in the way";
  const std::string in_the_way = message_of<IoError>([&] { const EventFileWriter file(scratch / "file/train"); });
  CHECK(contains(in_the_way, (scratch / "file/train").string()));
  CHECK(contains(in_the_way, "Not a directory"));
  // A directory in which even root cannot create files.
  const std::string closed = message_of<IoError>([] { const EventFileWriter file("/proc/self"); });
  CHECK(contains(closed, "/proc/self/events.out.tfevents."));
  CHECK(contains(closed, "choose a writable directory"));
}

TEST_CASE("a file that cannot grow is named", "[events]") {
  const ScratchDirectory scratch;
  std::string at_once;
  std::string later;
  std::string path;
  {
    const FileSizeLimit limit(16);
    at_once = message_of<IoError>([&] { const EventFileWriter file(scratch / "logs"); });
  }
  {
    EventFileWriter file(scratch / "logs");
    path = file.path().string();
    const FileSizeLimit limit(100);
    later = message_of<IoError>([&] {
      for (int i = 0; i < 3; ++i) file.add_scalar("loss", 1.0, i, 1.0);
      file.flush();
    });
  }
  CHECK(contains(at_once, (scratch / "logs/events.out.tfevents.").string()));
  CHECK(contains(at_once, "File too large"));
  CHECK(contains(later, path));
  CHECK(contains(later, "File too large"));
}
