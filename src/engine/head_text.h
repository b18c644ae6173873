// The text whose hidden states the output head's basis is learnt from (model/head_screen.h): prose, talk,
// lists, code, numbers and a few other languages, because the basis should fit what models are used for. It
// decides how fast the two-stage head is, never what it says.
#pragma once

#include <string_view>

namespace isthmus {

std::string_view head_calibration_text();

}  // namespace isthmus
