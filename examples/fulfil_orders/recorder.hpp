// What --trace records with: turnkey/trace.hpp where it is at hand, else nothing.
#pragma once

#include <turnkey/event.hpp>
#if __has_include(<turnkey/trace.hpp>)
#include <turnkey/trace.hpp>
#endif

#include <ostream>

namespace fulfil {

#if __has_include(<turnkey/trace.hpp>)
constexpr bool can_record = true;
using recorder = turnkey::trace<int>;
#else
constexpr bool can_record = false;
class recorder {
 public:
  [[nodiscard]] turnkey::observer<int> observer() const { return {}; }
  void write(std::ostream&) const {}
};
#endif

}  // namespace fulfil
