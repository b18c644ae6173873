#include "store/licence.h"

#include "store/json_text.h"

namespace isthmus {

Result<Licence> parse_licence(const nlohmann::json& object) {
  const auto it = object.find("licence");
  if (it == object.end() || !it->is_object()) return corrupt("'licence' is missing or not an object");
  Licence out;
  ISTHMUS_ASSIGN_OR_RETURN(out.id, json_string(*it, "id"));
  ISTHMUS_ASSIGN_OR_RETURN(out.name, json_string(*it, "name"));
  ISTHMUS_ASSIGN_OR_RETURN(out.url, json_string(*it, "url"));
  ISTHMUS_ASSIGN_OR_RETURN(out.terms, json_string_or(*it, "terms", ""));
  ISTHMUS_ASSIGN_OR_RETURN(out.must_accept, json_bool_or(*it, "must_accept", false));
  return out;
}

}  // namespace isthmus
