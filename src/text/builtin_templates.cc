#include "text/builtin_templates.h"

#include <array>

namespace isthmus {
namespace {

constexpr std::string_view kChatml = R"({%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\n' }}
{%- endif -%})";

// Llama 3: every turn has a header, contents are trimmed, the text starts with the BOS token.
constexpr std::string_view kLlama3 = R"({{- bos_token -}}
{%- for message in messages -%}
{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content | trim + '<|eot_id|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif -%})";

// Gemma has no system turn: a system message opens the first user turn. The assistant is called "model".
constexpr std::string_view kGemma = R"({{- bos_token -}}
{%- set ns = namespace(prefix='') -%}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{%- set ns.prefix = message.content | trim + '\n\n' -%}
{%- else -%}
{%- set role = 'model' if message.role == 'assistant' else message.role -%}
{{ '<start_of_turn>' + role + '\n' + ns.prefix + message.content | trim + '<end_of_turn>\n' }}
{%- set ns.prefix = '' -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<start_of_turn>model\n' }}
{%- endif -%})";

constexpr std::string_view kPhi3 = R"({%- for message in messages -%}
{{ '<|' + message.role + '|>\n' + message.content + '<|end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|assistant|>\n' }}
{%- endif -%})";

constexpr std::array<BuiltinTemplate, 4> kTemplates = {
    {{"chatml", kChatml}, {"llama3", kLlama3}, {"gemma", kGemma}, {"phi3", kPhi3}}};

}  // namespace

std::span<const BuiltinTemplate> builtin_templates() { return kTemplates; }

}  // namespace isthmus
