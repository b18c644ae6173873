/* isthmus.h seen by a C compiler: a run without any C++, called by the tests. */
#include <isthmus/isthmus.h>
#include <string.h>

/* Generates `count` greedy tokens after `text` into `out`; the code of what failed first. */
isthmus_code pure_c_generate(const char* path, const char* text, isthmus_token* out, size_t count);

isthmus_code pure_c_generate(const char* path, const char* text, isthmus_token* out, size_t count) {
  isthmus_model* model = NULL;
  isthmus_session* session = NULL;
  isthmus_sampler* sampler = NULL;
  isthmus_token* prompt = NULL;
  size_t length = 0;
  isthmus_sampler_params params;
  isthmus_sampler_params_init(&params, sizeof params);
  params.temperature = 0;

  isthmus_code code = isthmus_model_load(path, NULL, NULL, &model, NULL);
  if (code == ISTHMUS_OK) code = isthmus_session_create(model, &session, NULL);
  if (code == ISTHMUS_OK) code = isthmus_sampler_create(model, &params, &sampler, NULL);
  if (code == ISTHMUS_OK) code = isthmus_tokenize(model, text, strlen(text), 0, &prompt, &length, NULL);
  /* The handles keep it alive. */
  isthmus_model_free(model);
  if (code == ISTHMUS_OK) code = isthmus_session_append(session, prompt, length, ISTHMUS_PROMPT, NULL, NULL);
  for (size_t i = 0; code == ISTHMUS_OK && i < count; ++i) {
    const isthmus_sampled* sampled = NULL;
    code = isthmus_sampler_sample_session(sampler, session, &sampled, NULL);
    if (code != ISTHMUS_OK) break;
    out[i] = sampled->token;
    code = isthmus_session_append(session, &out[i], 1, ISTHMUS_GENERATION, NULL, NULL);
  }
  isthmus_free(prompt);
  isthmus_sampler_free(sampler);
  isthmus_session_free(session);
  return code;
}
