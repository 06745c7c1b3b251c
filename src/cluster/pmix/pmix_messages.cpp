// See pmix_messages.hpp.
#include "cluster/pmix/pmix_messages.hpp"

#include "cluster/net/frame.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

namespace {

constexpr std::size_t number_bytes = sizeof(std::uint64_t);
constexpr std::size_t max_nspace_length = 255;  // PMIX_MAX_NSLEN

int to_int(std::uint64_t number) {
  const auto value = static_cast<std::int64_t>(number);
  if (value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max()) {
    throw DataError(fmt::format("a message holds {}, which is not an int", value));
  }
  return static_cast<int>(value);
}

std::uint64_t to_number(int value) { return static_cast<std::uint64_t>(std::int64_t{value}); }

void write(BodyWriter& body, const std::vector<int>& numbers) {
  body.number(numbers.size());
  for (const int number : numbers) body.number(to_number(number));
}

std::vector<int> read_ints(BodyReader& body) {
  std::vector<int> numbers(body.count(number_bytes));
  for (int& number : numbers) number = to_int(body.number());
  return numbers;
}

}  // namespace

std::string to_body(const PmixJob& job) {
  BodyWriter body;
  body.text(job.nspace);
  write(body, job.node_of_rank);
  write(body, job.served);
  body.text(job.session_directory).text(job.memory_directory).number(job.ranks_on_machine).text(job.tcp_address);
  return body.number(job.first_tcp_port).number(job.tcp_ports).take();
}

PmixJob read_job(std::string_view text) {
  BodyReader body(text);
  PmixJob job{};
  job.nspace = body.text();
  job.node_of_rank = read_ints(body);
  job.served = read_ints(body);
  job.session_directory = body.text();
  job.memory_directory = body.text();
  job.ranks_on_machine = body.number();
  job.tcp_address = body.text();
  job.first_tcp_port = body.number();
  job.tcp_ports = body.number();
  body.finish();
  check_job(job);
  return job;
}

void check_job(const PmixJob& job) {
  if (job.nspace.empty() || job.nspace.size() > max_nspace_length) {
    throw DataError(fmt::format("a PMIx namespace must have 1 to 255 characters, not {}", job.nspace.size()));
  }
  int nodes = 0;
  for (const int node : job.node_of_rank) {
    if (node < 0 || node > nodes) throw DataError("nodes are not numbered in the order of their first ranks");
    nodes = std::max(nodes, node + 1);
  }
  const auto ranks = static_cast<int>(job.node_of_rank.size());
  if (job.served.empty()) throw DataError("a PMIx server needs ranks to serve");
  for (std::size_t i = 0; i < job.served.size(); ++i) {
    const int rank = job.served[i];
    if (rank < 0 || rank >= ranks) {
      throw DataError(fmt::format("rank {} is not one of {} ranks", rank, ranks));
    }
    if (i > 0 && rank <= job.served[i - 1]) throw DataError("the ranks of a PMIx server are not in ascending order");
    if (job.node_of_rank[static_cast<std::size_t>(rank)] !=
        job.node_of_rank[static_cast<std::size_t>(job.served.front())]) {
      throw DataError("the ranks of a PMIx server are on different nodes");
    }
  }
  if (job.session_directory.empty()) throw DataError("a PMIx server needs a session directory");
  constexpr std::uint64_t ports = std::numeric_limits<std::uint16_t>::max();
  if (job.first_tcp_port > ports || job.tcp_ports > ports) throw DataError("a TCP port is out of range");
}

std::string to_body(const PmixReady& ready) {
  BodyWriter body;
  body.number(ready.environments.size());
  for (const Environment& environment : ready.environments) {
    body.number(environment.size());
    for (const auto& [name, value] : environment) body.text(name).text(value);
  }
  return body.take();
}

PmixReady read_ready(std::string_view text) {
  BodyReader body(text);
  PmixReady ready;
  ready.environments.resize(body.count(number_bytes));
  for (Environment& environment : ready.environments) {
    for (std::size_t left = body.count(2 * number_bytes); left > 0; --left) {
      std::string name = body.text();
      environment.insert_or_assign(std::move(name), body.text());
    }
  }
  body.finish();
  return ready;
}

std::string to_body(const PmixFence& fence) { return BodyWriter().number(fence.sequence).text(fence.blob).take(); }

PmixFence read_fence(std::string_view text) {
  BodyReader body(text);
  PmixFence fence;
  fence.sequence = body.number();
  fence.blob = body.text();
  body.finish();
  return fence;
}

std::string to_body(const PmixFenceDone& done) {
  return BodyWriter().number(done.sequence).number(done.ok ? 1 : 0).text(done.data).take();
}

PmixFenceDone read_fence_done(std::string_view text) {
  BodyReader body(text);
  PmixFenceDone done;
  done.sequence = body.number();
  done.ok = body.number() == 1;
  done.data = body.text();
  body.finish();
  return done;
}

std::string to_body(const PmixAbort& abort) {
  return BodyWriter().number(to_number(abort.rank)).number(to_number(abort.status)).text(abort.message).take();
}

PmixAbort read_abort(std::string_view text) {
  BodyReader body(text);
  PmixAbort abort;
  abort.rank = to_int(body.number());
  abort.status = to_int(body.number());
  abort.message = body.text();
  body.finish();
  return abort;
}

}  // namespace lockstep
