// One visitor for std::visit made of several lambdas: std::visit(Overloaded{[](A) {...}, [](B) {...}}, variant).
#pragma once

namespace lockstep {

template <typename... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <typename... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

}  // namespace lockstep
