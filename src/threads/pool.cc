#include "threads/pool.h"
