// A member's mouth: connects to the chief's address, resolving its name anew each time, proves that it belongs to the
// job, carries messages between its member and the coordinator, and connects again when that ends.
#pragma once

#include <poll.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cluster/address.hpp"
#include "cluster/connection.hpp"
#include "cluster/deadline.hpp"
#include "cluster/endpoint.hpp"
#include "cluster/errand.hpp"
#include "cluster/handshake.hpp"
#include "cluster/member.hpp"
#include "cluster/socket.hpp"
#include "cluster/supervision.hpp"

namespace lockstep {

class RendezvousClient {
 public:
  /// All references outlive this.
  RendezvousClient(Address chief, const Pass& pass, Introduction self, const Supervision& limits, Member& member);

  /// Appends what poll() should wait for.
  void collect(std::vector<pollfd>& polled);
  /// Serves what poll() found, in what collect() appended last; `polled` may hold more.
  void handle(std::span<const pollfd> polled);

  /// Sends what the member has to say.
  void pump();

  [[nodiscard]] bool is_flushed() const { return !connection_ || connection_->is_flushed(); }

  /// This process' IP address on the way to the chief; empty before the first connection.
  [[nodiscard]] const std::string& own_address() const noexcept { return self_.address; }

 private:
  enum class State { pausing, resolving, connecting, introducing, joined };

  void look_up();
  void take_endpoints();
  void connect_next();
  void introduce();
  void take_answers();
  void give_up(const std::string& why);
  void pause();

  Address chief_;
  const Pass& pass_;
  Introduction self_;
  Supervision limits_;
  Member& member_;

  State state_ = State::pausing;
  Deadline deadline_ = Deadline::after(0);  ///< of the state
  double pause_ = 0.05;                     ///< seconds, grows with each attempt
  Errand errand_;
  std::vector<Endpoint> endpoints_;  ///< not tried yet, the next at the end
  Socket connecting_;
  std::optional<Connection> connection_;
  std::optional<Visitor> visitor_;
  std::optional<double> turned_away_since_;  ///< with what might change
  std::string problem_;                      ///< of this round's attempts
  std::size_t polled_from_ = 0;
};

}  // namespace lockstep
