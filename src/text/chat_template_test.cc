// The interpreter against jinja2's golden output, its limits, its errors, the sandbox and the built-in
// templates.
#include "text/chat_template.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

namespace isthmus {
namespace {

using Json = nlohmann::ordered_json;

Result<std::string> render(std::string_view source, const Json& context = Json::object(),
                           TemplateLimits limits = {}) {
  auto parsed = ChatTemplate::parse(source, limits);
  if (!parsed.ok()) return parsed.status();
  return parsed->render(context);
}

/// The rendered text, or the error's.
std::string text_of(std::string_view source, const Json& context = Json::object()) {
  const auto result = render(source, context);
  return result.ok() ? *result : result.status().to_string();
}

Code code_of(std::string_view source, TemplateLimits limits = {}) {
  return render(source, Json::object(), limits).status().code();
}

std::string repeat(std::string_view text, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += text;
  return out;
}

TEST(ChatTemplate, EqualsJinja2OnEverySnippet) {
  std::ifstream file(std::string(ISTHMUS_SOURCE_DIR) + "/tests/templates/golden.json");
  const Json golden = Json::parse(file);
  size_t failures_expected = 0;
  for (const Json& one : golden["cases"]) {
    const auto source = one[0].get<std::string>();
    auto parsed = ChatTemplate::parse(source);
    const auto result = parsed.ok() ? parsed->render(golden["context"], golden["now"].get<int64_t>())
                                    : Result<std::string>(parsed.status());
    if (one[1].is_null()) {
      ++failures_expected;
      EXPECT_FALSE(result.ok()) << source << " gave " << *result;
    } else {
      ASSERT_TRUE(result.ok()) << source << ": " << result.status().to_string();
      EXPECT_EQ(*result, one[1].get<std::string>()) << source;
    }
  }
  EXPECT_GT(golden["cases"].size(), 700U);
  EXPECT_GT(failures_expected, 150U);
}

TEST(ChatTemplate, ErrorsNameLineAndColumn) {
  const auto at = [](std::string_view source) { return render(source).status().to_string(); };
  EXPECT_EQ(at("a\n  {{ x. }}"),
            "corrupt: chat template: expected a name or number, got '}}' (line 2, column 9)");
  EXPECT_EQ(at("é {{ 1|nosuch }}"),
            "unsupported: chat template: no filter named 'nosuch' (line 1, column 8)");
  EXPECT_EQ(at("{{ 1 is nosuch }}"), "unsupported: chat template: no test named 'nosuch' (line 1, column 9)");
  EXPECT_EQ(at("\n\n{{ a.b }}"), "invalid_argument: chat template: 'a' is undefined (line 3, column 5)");
  EXPECT_EQ(
      at("{{ 'x'.encode() }}"),
      "unsupported: chat template: the method 'encode' of str is not available in chat templates (line 1, "
      "column 14)");
  EXPECT_EQ(at("{{ 9223372036854775807 + 1 }}"),
            "unsupported: chat template: integer result beyond 64 bits (line 1, column 24)");
  EXPECT_EQ(at("{{ raise_exception('No system role') }}"),
            "invalid_argument: chat template: No system role (line 1, column 19)");
  EXPECT_EQ(
      at("{% include 'x' %}"),
      "unsupported: chat template: the tag 'include' is not available in chat templates (line 1, column 4)");
}

TEST(ChatTemplate, RefusesAContextThatIsNoObject) {
  auto parsed = ChatTemplate::parse("x");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->render(Json::array()).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(parsed->render(Json("text")).status().code(), Code::kInvalidArgument);
}

TEST(ChatTemplate, ContextIntegersBeyond64BitsFailTyped) {
  EXPECT_EQ(render("{{ x }}", Json{{"x", UINT64_MAX}}).status().code(), Code::kUnsupported);
  EXPECT_EQ(text_of("{{ x }}", Json{{"x", INT64_MIN}}), "-9223372036854775808");
}

TEST(ChatTemplate, DeepContextFailsTyped) {
  Json deep = 1;
  for (int i = 0; i < 1000; ++i) deep = Json::array({deep});
  EXPECT_EQ(render("{{ x }}", Json{{"x", deep}}).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(text_of("unused", Json{{"x", deep}}), "unused");
}

TEST(ChatTemplateLimits, Steps) {
  const char* loops = "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}";
  EXPECT_EQ(code_of(loops), Code::kResourceExhausted);
  EXPECT_EQ(code_of("{% for a in range(100) %}x{% endfor %}", {.steps = 50}), Code::kResourceExhausted);
  EXPECT_EQ(code_of("{{ range(10**9) }}"), Code::kResourceExhausted);
}

TEST(ChatTemplateLimits, Output) {
  EXPECT_EQ(code_of("{{ 'x' * 5000000 }}"), Code::kResourceExhausted);
  EXPECT_EQ(code_of("{{ 'x' * 9000000000000000000 }}"), Code::kResourceExhausted);
  EXPECT_EQ(code_of("{{ 'x'.center(1000000000) }}"), Code::kResourceExhausted);
  EXPECT_EQ(code_of("{{ '%1000000000d' % 1 }}"), Code::kResourceExhausted);
  EXPECT_EQ(code_of("{{ '{:1000000000}'.format(1) }}"), Code::kResourceExhausted);
  EXPECT_EQ(code_of("{{ [1]|tojson(indent=1000000000) }}"), Code::kResourceExhausted);
  EXPECT_EQ(code_of("{{ 'x'|indent(1000000000) }}"), Code::kResourceExhausted);
  EXPECT_EQ(code_of("{% for i in range(99) %}{{ 'x' * 100 }}{% endfor %}", {.output_bytes = 5000}),
            Code::kResourceExhausted);
  const char* doubling =
      "{% set n = namespace(s='x') %}{% for i in range(90) %}{% set n.s = n.s + n.s %}{% endfor %}";
  EXPECT_EQ(code_of(doubling), Code::kResourceExhausted);
}

TEST(ChatTemplateLimits, DataThatGrowsBySharing) {
  const std::string grow =
      "{% set n = namespace(s=[1]) %}{% for i in range(60) %}{% set n.s = [n.s, n.s] %}{% endfor %}";
  EXPECT_EQ(code_of(grow + "{{ n.s }}"), Code::kResourceExhausted);
  EXPECT_EQ(code_of(grow + "{{ n.s|tojson }}"), Code::kResourceExhausted);
  EXPECT_EQ(code_of(grow + "{% set a = n.s + [] %}{{ [a, [1]] == [n.s, 2] }}"), Code::kOk);
  const std::string nest =
      "{% set n = namespace(s=[]) %}{% for i in range(90000) %}{% set n.s = [n.s] %}{% endfor %}";
  EXPECT_EQ(code_of(nest), Code::kResourceExhausted);
  EXPECT_EQ(code_of("{% set n = namespace() %}{% set n.me = [n] %}{{ n }}"), Code::kResourceExhausted);
}

// Work per step stays bounded on inputs that make naive searches quadratic.
TEST(ChatTemplateLimits, HostileSearches) {
  const std::string text = "{% set a = 'a' * 1000000 %}{% set b = 'a' * 500000 %}";
  EXPECT_EQ(code_of(text + "{{ (b + 'b') in a }}"), Code::kOk);
  EXPECT_EQ(code_of(text + "{{ a.find('b' + b) }}{{ a.count(b + 'b') }}"), Code::kOk);
  EXPECT_EQ(code_of(text + "{{ a.split(b + 'b')|length }}{{ a|replace(b + 'b', '')|length }}"), Code::kOk);
  EXPECT_EQ(code_of(text + "{{ a.rfind('b' + b) }}"), Code::kResourceExhausted);
  EXPECT_EQ(code_of(text + "{{ a|trim(b + 'b') }}"), Code::kResourceExhausted);
  EXPECT_EQ(code_of(text + "{{ a.strip(b + 'b') }}"), Code::kResourceExhausted);
}

TEST(ChatTemplateLimits, ManyNames) {
  std::string many = "{% macro m() %}{{ kwargs }}{% endmacro %}{{ m(";
  for (int i = 0; i < 2000; ++i) many += "a" + std::to_string(i) + "=1,";
  EXPECT_EQ(code_of(many + ") }}"), Code::kResourceExhausted);
}

TEST(ChatTemplateLimits, Recursion) {
  EXPECT_EQ(code_of("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), Code::kResourceExhausted);
  EXPECT_EQ(code_of("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}"), Code::kResourceExhausted);
  const char* sixty =
      "{% macro m(n) %}{% if n > 0 %}{{ m(n - 1) }}{% else %}end{% endif %}{% endmacro %}{{ m(60) }}";
  EXPECT_EQ(text_of(sixty), "end");
}

TEST(ChatTemplateLimits, NestedSource) {
  for (const char* open : {"(", "[", "{1:", "x[", "f(", "1 + (", "not (", "-(", "a|f(", "{'a': ("}) {
    EXPECT_EQ(code_of("{{ " + repeat(open, 100000 / 5)), Code::kResourceExhausted) << open;
  }
  EXPECT_EQ(code_of(repeat("{% if x %}", 50000)), Code::kResourceExhausted);
  EXPECT_EQ(code_of(repeat("{% for x in y %}", 50000)), Code::kResourceExhausted);
  EXPECT_EQ(code_of("{{ " + repeat("1 if ", 1000) + "1 }}"), Code::kResourceExhausted);
  EXPECT_EQ(code_of("{% for " + repeat("(", 1000)), Code::kResourceExhausted);
  EXPECT_EQ(code_of(std::string(2U << 20U, 'x')), Code::kResourceExhausted);
}

TEST(ChatTemplateLimits, LongChainsNeedNoNesting) {
  EXPECT_EQ(text_of("{{ 0" + repeat(" + 1", 20000) + " }}"), "20000");
  EXPECT_EQ(text_of("{{ 1" + repeat(" and 1", 5000) + " }}"), "1");
  EXPECT_EQ(text_of("{{ " + repeat("not ", 5001) + "1 }}"), "False");
  EXPECT_EQ(text_of("{{ " + repeat("- ", 5000) + "1 }}"), "1");
  EXPECT_EQ(text_of("{{ 'a'" + repeat("|upper", 5000) + " }}"), "A");
  EXPECT_EQ(text_of("{{ " + repeat("0 if false else ", 5000) + "7 }}"), "7");
  EXPECT_EQ(text_of("{% if false %}" + repeat("{% elif false %}", 5000) + "{% else %}z{% endif %}"), "z");
}

/// Runs `work` on a thread with a stack of `bytes`.
void with_stack(size_t bytes, std::function<void()> work) {
  pthread_attr_t attr;
  ASSERT_EQ(pthread_attr_init(&attr), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attr, bytes), 0);
  pthread_t thread;
  const auto run = [](void* arg) -> void* {
    (*static_cast<std::function<void()>*>(arg))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attr, run, &work), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attr);
}

// The default limits fit a 256 KiB stack. Sanitizers make every frame several times larger.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ISTHMUS_LARGE_FRAMES
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(ISTHMUS_LARGE_FRAMES)
constexpr size_t kStack = 2048 * 1024;
#else
constexpr size_t kStack = 256 * 1024;
#endif

TEST(ChatTemplateLimits, FitASmallStack) {
  with_stack(kStack, [] {
    for (const char* open :
         {"(", "[", "{1:", "x[", "f(", "1 or 1 and 1 == 1 + 1 ~ 1 * 1 ** (", "a is b([", "a|f("}) {
      EXPECT_EQ(code_of("{{ " + repeat(open, 1000)), Code::kResourceExhausted) << open;
    }
    const std::string deep = repeat("[", 60) + "1" + repeat("]", 60);
    EXPECT_EQ(text_of("{{ " + deep + " }}"), deep);
    EXPECT_EQ(text_of("{{ " + deep + "|tojson == " + deep + "|string }}"), "True");
    EXPECT_EQ(
        text_of("{{ " + repeat("(1 if 1 else 2) and [", 25) + "1" + repeat("]", 25) + " }}").substr(0, 1),
        "[");
    const std::string call = "{{ m(" + repeat("[", 20) + "m()" + repeat("]", 20) + ") }}";
    EXPECT_EQ(code_of("{% macro m(x) %}{% if 1 %}{% for i in [1] %}{% filter upper %}" + call +
                      "{% endfilter %}{% endfor %}{% endif %}{% endmacro %}{{ m() }}"),
              Code::kResourceExhausted);
    EXPECT_EQ(code_of("{% macro m(x=m()) %}{% endmacro %}{{ m() }}"), Code::kResourceExhausted);
    EXPECT_EQ(
        code_of("{% macro m() %}{% call m() %}{{ m() }}{% endcall %}{{ caller() }}{% endmacro %}{{ m() }}"),
        Code::kResourceExhausted);
    Json context = 1;
    for (int i = 0; i < 95; ++i) context = Json{{"k", Json::array({context})}};
    EXPECT_EQ(render("{{ x|tojson }}", Json{{"x", context}}).status().code(), Code::kResourceExhausted);
    EXPECT_EQ(code_of(repeat("{% if 1 %}", 60) + "x" + repeat("{% endif %}", 60)), Code::kOk);
  });
}

TEST(ChatTemplateSandbox, KnownPayloadsGiveTextOrAnError) {
  const std::vector<std::string> payloads = {
      "{{ ''.__class__.__mro__[1].__subclasses__() }}",
      "{% for x in ().__class__.__base__.__subclasses__() %}{{ x()._module.__builtins__ }}{% endfor %}",
      "{{ self._TemplateReference__context.cycler.__init__.__globals__.os.popen('id').read() }}",
      "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
      "{{ joiner.__init__.__globals__.os }}",
      "{{ namespace.__init__.__globals__.os }}",
      "{{ lipsum.__globals__['os'].popen('id').read() }}",
      "{{ request['application']['__globals__']['__builtins__']['__import__']('os') }}",
      "{{ messages.__class__.__init__.__globals__ }}",
      "{{ (''|attr('__class__')|attr('__mro__'))[1] }}",
      "{{ [''|attr('__class__')]|map(attribute='__mro__')|list }}",
      "{{ '{0.__class__.__init__.__globals__}'.format('x') }}",
      "{{ ''.format.__globals__ }}",
      "{% set x = messages.append('x') %}",
      "{{ messages|map('attr', '__class__')|list }}"};
  for (const std::string& payload : payloads) {
    const auto result = render(payload, Json{{"messages", Json::array({"m"})}});
    if (result.ok()) {
      EXPECT_EQ(result->find("class"), std::string::npos) << payload;
    }
  }
}

TEST(ChatTemplateBuiltins, UnknownNameListsTheKnownOnes) {
  const auto result = ChatTemplate::builtin("alpaca");
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::kNotFound);
  for (std::string_view name : ChatTemplate::builtin_names()) {
    EXPECT_NE(result.status().message().find(name), std::string::npos);
    EXPECT_TRUE(ChatTemplate::builtin(name).ok());
  }
  EXPECT_EQ(ChatTemplate::builtin_names().size(), 4U);
}

const Json& talk() {
  static const Json context = {{"bos_token", "<BOS>"},
                               {"add_generation_prompt", true},
                               {"messages",
                                {{{"role", "system"}, {"content", "Be brief."}},
                                 {{"role", "user"}, {"content", " Hi "}},
                                 {{"role", "assistant"}, {"content", "Hello"}},
                                 {{"role", "user"}, {"content", "Bye"}}}}};
  return context;
}

std::string builtin_text(std::string_view name, const Json& context) {
  const auto parsed = ChatTemplate::builtin(name);
  EXPECT_TRUE(parsed.ok());
  const auto text = parsed->render(context);
  EXPECT_TRUE(text.ok()) << text.status().to_string();
  return text.ok() ? *text : "";
}

TEST(ChatTemplateBuiltins, GiveTheWellKnownFormats) {
  EXPECT_EQ(
      builtin_text("chatml", talk()),
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n"
      "<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(builtin_text("llama3", talk()),
            "<BOS><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nHello<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_EQ(
      builtin_text("gemma", talk()),
      "<BOS><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello<end_of_turn>\n"
      "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_EQ(builtin_text("phi3", talk()),
            "<|system|>\nBe brief.<|end|>\n<|user|>\n Hi "
            "<|end|>\n<|assistant|>\nHello<|end|>\n<|user|>\nBye<|end|>\n"
            "<|assistant|>\n");
}

TEST(ChatTemplateBuiltins, AddTheAnswersHeaderOnlyWhenAsked) {
  Json context = talk();
  context["add_generation_prompt"] = false;
  for (std::string_view name : ChatTemplate::builtin_names()) {
    const std::string with = builtin_text(name, talk());
    const std::string without = builtin_text(name, context);
    EXPECT_TRUE(with.starts_with(without) && with.size() > without.size()) << name;
  }
}

TEST(ChatTemplate, OneTemplateRendersOnManyThreads) {
  const auto parsed = ChatTemplate::builtin("chatml");
  ASSERT_TRUE(parsed.ok());
  const std::string expected = *parsed->render(talk());
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) wrong[t] += *parsed->render(talk()) == expected ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int count : wrong) EXPECT_EQ(count, 0);
}

}  // namespace
}  // namespace isthmus
