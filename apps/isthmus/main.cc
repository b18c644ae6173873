// The isthmus program: its command line.
#include "apps/isthmus/cli.h"
#include "apps/isthmus/interrupt.h"
#include "os/console.h"

int main(int argc, char** argv) {
  isthmus::os::open_missing_streams();
  isthmus::cli::install_interrupt_handlers();
  return isthmus::cli::run(std::vector<std::string>(argv + 1, argv + argc));
}
