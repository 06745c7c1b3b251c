// Fuzzes the parser of a launcher's status port. Any bytes must be a request, an incomplete request, or a DataError,
// independently of how they are fragmented.
#include "cluster/status/http_request.hpp"

#include "seeds.hpp"

#include <lockstep/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace lockstep;

enum class Judgement { refused, unfinished, whole };

Judgement judge(std::string_view bytes) {
  try {
    const std::optional<HttpRequest> request = read_http_request(bytes);
    if (request && (request->path.empty() || request->path.front() != '/')) std::abort();
    return request ? Judgement::whole : Judgement::unfinished;
  } catch (const DataError&) {
    return Judgement::refused;
  }
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned int lot) {
  static const std::vector<std::string> seeds{"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "HEAD / HTTP/1.0\r\n\r\n",
                                              "POST /healthz?a=b HTTP/1.1\r\nContent-Length: 1\r\n\r\nx"};
  return lockstep::testing::mutate_from(seeds, data, size, max_size, lot);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Judgement all = judge(bytes);
  for (std::size_t first = 0; first < size; ++first) {
    const Judgement some = judge(bytes.substr(0, first));
    // A prefix that was rejected or complete stays so with more bytes.
    if (some != Judgement::unfinished && some != all) std::abort();
  }
  return 0;
}
