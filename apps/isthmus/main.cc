// The isthmus program: command line and (later) the service.
#include <cstdio>

int main() {
  std::puts("isthmus");
  return 0;
}
