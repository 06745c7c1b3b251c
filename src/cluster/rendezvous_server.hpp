// The coordinator's ear: listens on the chief's port, lets in who belongs to the job, and carries messages between
// members and the coordinator. Strangers (scanners, probes, slow and silent connections) cost a small buffer each, of a
// limited number for a limited time; where more come than there is room for, the oldest goes.
#pragma once

#include <poll.h>

#include <cstddef>
#include <list>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "cluster/address.hpp"
#include "cluster/connection.hpp"
#include "cluster/coordinator.hpp"
#include "cluster/deadline.hpp"
#include "cluster/errand.hpp"
#include "cluster/handshake.hpp"
#include "cluster/socket.hpp"
#include "cluster/supervision.hpp"

namespace lockstep {

class RendezvousServer {
 public:
  /// `addresses`: the tasks', to ask what is wrong with those that are missing. All references outlive this.
  RendezvousServer(Socket listener, const Pass& pass, std::vector<Address> addresses, const Supervision& limits,
                   Coordinator& coordinator);

  /// Appends what poll() should wait for.
  void collect(std::vector<pollfd>& polled);
  /// Serves what poll() found, in what collect() appended last; `polled` may hold more.
  void handle(std::span<const pollfd> polled);

  /// The coordinator's actions, as far as they are for the network.
  void post(std::size_t member, const SharedBytes& bytes);
  void hang_up(std::size_t member);

  /// Where a member has reached this process; not by way of the loopback interface, if one has come otherwise.
  [[nodiscard]] const std::string& own_address() const noexcept { return own_address_; }

  [[nodiscard]] bool is_flushed() const;
  [[nodiscard]] std::size_t strangers() const noexcept { return strangers_.size(); }

  /// Lines for people: who was turned away. One for all in ten seconds, so that a scanner does not fill the log.
  [[nodiscard]] std::vector<std::string> take_lines();

 private:
  struct Stranger {
    Connection connection;
    Doorkeeper doorkeeper;
    std::string from;
    double since = 0;
    Deadline deadline;
    bool was_refused = false;
  };

  void accept_some();
  void make_room();
  /// False where it is done with: gone, refused, or a member now.
  [[nodiscard]] bool serve(Stranger& stranger);
  [[nodiscard]] bool admit(Stranger& stranger, const Introduction& who);
  void turn_away(Stranger& stranger, const Frame& answer, const std::string& why);
  void ignore(const Stranger& stranger, const std::string& why);
  void serve(std::size_t member);
  void ask_for_missing();

  const Pass& pass_;
  std::vector<Address> addresses_;
  Supervision limits_;
  Coordinator& coordinator_;
  Socket listener_;
  std::size_t most_strangers_;

  std::vector<std::unique_ptr<Connection>> members_;  ///< by number; null for those that are not there
  std::list<Stranger> strangers_;                     ///< the oldest first
  std::string own_address_;
  double no_accept_until_ = 0;  ///< the system has no descriptor to give

  Errand probe_;  ///< asks for those missing
  std::vector<std::size_t> probed_;
  double next_probe_ = 0;

  // Where collect() put what.
  std::size_t polled_from_ = 0;
  std::vector<std::size_t> polled_members_;

  std::vector<std::string> lines_;
  std::set<std::string> told_;  ///< refusals that were told
  std::size_t ignored_ = 0;
  double next_line_ = 0;
  std::string last_ignored_;
};

}  // namespace lockstep
