// What the machine did meanwhile, where it tells.
#pragma once

#include <unistd.h>

#include <fstream>
#include <optional>
#include <string>

namespace contention {

// The time that all processors together were busy since the start, for whomever; none where there is no /proc/stat.
inline std::optional<double> machine_busy_seconds() {
  std::ifstream file("/proc/stat");
  std::string name;
  double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, interrupts = 0, soft_interrupts = 0, stolen = 0;
  file >> name >> user >> nice >> system >> idle >> waiting >> interrupts >> soft_interrupts >> stolen;
  if (!file || name != "cpu") return std::nullopt;
  return (user + nice + system + interrupts + soft_interrupts + stolen) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace contention
