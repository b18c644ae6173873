// Continues a text, and shows how sure the model was: complete MODEL.gguf "TEXT"
#include <cmath>
#include <cstdio>
#include <exception>
#include <iostream>
#include <isthmus/isthmus.hpp>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: complete MODEL.gguf TEXT\n";
    return 2;
  }
  try {
    const isthmus::Model model(argv[1]);
    isthmus::Session session(model);
    const auto prompt = model.tokenize(argv[2], ISTHMUS_ADD_BOS_EOS);

    isthmus::GenerateOptions options;
    options.sampler = isthmus::SamplerParams::greedy();
    options.sampler.logprobs = 3;
    options.max_tokens = 16;
    options.limits.deadline = std::chrono::seconds(60);
    options.on_text = [](std::string_view text) {
      std::cout << text << std::flush;
      return true;
    };
    const isthmus::Generation run = session.generate(prompt, options);
    std::cout << '\n';

    double sum = 0;
    const auto tokens = run.tokens();
    for (size_t i = 0; i < tokens.size(); ++i) sum += run.logprobs(i)->logprob;
    const isthmus_figures figures = run.figures();
    std::fprintf(stderr, "[%s; %zu tokens, perplexity %.2f, %.1f ms per token]\n",
                 isthmus_finish_reason_name(run.reason()), tokens.size(),
                 std::exp(-sum / static_cast<double>(tokens.size())), 1000 * figures.tbt_p50_seconds);
    return 0;
  } catch (const isthmus::Error& error) {
    std::cerr << isthmus_code_name(error.code()) << ": " << error.what() << '\n';
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
  }
  return 1;
}
