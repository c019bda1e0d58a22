// The C interface from C: results by hand, masks, errors. Exits with 1 if a check fails.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cephalo/c_api.h"

static int failures = 0;

static void check(int holds, const char* what, int line) {
  if (holds) return;
  ++failures;
  fprintf(stderr, "c_api_test.c:%d: %s\n", line, what);
}
#define CHECK(condition) check((condition), #condition, __LINE__)

// The call fails with this status, and its message holds this text.
static void check_error(cephalo_status status, cephalo_status wanted, const char* text, int line) {
  if (status == wanted && strstr(cephalo_last_error(), text) != NULL) return;
  ++failures;
  fprintf(stderr, "c_api_test.c:%d: status %d, \"%s\"; wanted status %d, \"%s\"\n", line,
          (int)status, cephalo_last_error(), (int)wanted, text);
}
#define CHECK_ERROR(call, status, text) check_error((call), (status), (text), __LINE__)
#define CHECK_OK(call) check_error((call), CEPHALO_OK, "", __LINE__)

// Dense and row-major, with the shape [rows, columns].
static cephalo_tensor matrix(void* data, int32_t dtype, int64_t rows, int64_t columns) {
  cephalo_tensor t;
  memset(&t, 0, sizeof t);
  t.data = data;
  t.dtype = dtype;
  t.rank = 2;
  t.shape[0] = rows;
  t.shape[1] = columns;
  t.strides[0] = columns;
  t.strides[1] = 1;
  return t;
}

static cephalo_tensor vector(void* data, int32_t dtype, int64_t length) {
  cephalo_tensor t = matrix(data, dtype, length, 1);
  t.rank = 1;
  t.strides[0] = 1;
  return t;
}

static int near(double a, double b) {
  return fabs(a - b) <= 1e-6;
}

// One head of width 1: three queries, keys and values. scores[i][j] = q[i] · k[j].
#define TOKENS 3
static float q_data[TOKENS] = {1.0F, -2.0F, 0.5F};
static float k_data[TOKENS] = {0.3F, 1.0F, -0.7F};
static float v_data[TOKENS] = {10.0F, 20.0F, 40.0F};
static float context_data[TOKENS];
static float lse_data[TOKENS];
static cephalo_tensor q, k, v, context, lse;

static void make_tensors(void) {
  q = matrix(q_data, CEPHALO_FLOAT32, TOKENS, 1);
  k = matrix(k_data, CEPHALO_FLOAT32, TOKENS, 1);
  v = matrix(v_data, CEPHALO_FLOAT32, TOKENS, 1);
  context = matrix(context_data, CEPHALO_FLOAT32, TOKENS, 1);
  lse = vector(lse_data, CEPHALO_FLOAT32, TOKENS);
}

// What a test expects of the pair (i, j): is it visible, and what is added to its score.
typedef struct pair {
  int visible;
  double added;
} pair;
typedef pair (*mask_rule)(int i, int j);

// The definition, written out: softmax over the visible keys of a query, then the mean of v.
static void check_attended(mask_rule rule, double scale, double softcap, int line) {
  for (int i = 0; i < TOKENS; ++i) {
    double sum = 0.0;
    double mean = 0.0;
    for (int j = 0; j < TOKENS; ++j) {
      const pair p = rule(i, j);
      double score = scale * (double)q_data[i] * (double)k_data[j];
      if (softcap > 0.0) score = softcap * tanh(score / softcap);
      const double weight = p.visible ? exp(score + p.added) : 0.0;
      sum += weight;
      mean += weight * (double)v_data[j];
    }
    const double wanted = sum > 0.0 ? mean / sum : 0.0;
    const int lse_agrees = sum > 0.0 ? near(lse_data[i], log(sum)) : lse_data[i] == -INFINITY;
    if (near(context_data[i] / 10.0, wanted / 10.0) && lse_agrees) continue;
    ++failures;
    fprintf(stderr, "c_api_test.c:%d: query %d: context %g, wanted %g; lse %g, wanted %g\n", line,
            i, (double)context_data[i], wanted, (double)lse_data[i], log(sum));
  }
}

static pair all(int i, int j) {
  (void)i, (void)j;
  return (pair){1, 0.0};
}
static pair lower(int i, int j) {
  return (pair){j <= i, 0.0};
}
static pair lower_or_first_two(int i, int j) {
  return (pair){j <= i || j < 2, 0.0};
}
static pair itself_and_one_before(int i, int j) {
  return (pair){i - 1 <= j && j <= i, 0.0};
}
static pair earlier_by_one(int i, int j) {
  return (pair){j <= i - 1, 0.0};
}
static pair first_two_keys(int i, int j) {
  return (pair){i < 2 && j < 2, 0.0};
}
static pair same_document(int i, int j) {
  return (pair){(i == 0) == (j == 0), 0.0};
}
static pair not_the_diagonal(int i, int j) {
  return (pair){i != j, 0.0};
}
static pair biased(int i, int j) {
  return (pair){!(i == 1 && j == 2), 0.25 * i - 0.5 * j};
}
static pair by_distance(int i, int j) {
  return (pair){j <= i, -0.5 * abs(i - j)};
}

static cephalo_mask* new_mask(void) {
  cephalo_mask* mask = NULL;
  CHECK_OK(cephalo_mask_create(&mask));
  return mask;
}

// Attends with a mask, compares with the rule, and gives the mask back.
static void attend_with(cephalo_mask* mask, mask_rule rule, int line) {
  check_error(cephalo_attend(&q, &k, &v, mask, NULL, &context, &lse), CEPHALO_OK, "", line);
  check_attended(rule, 1.0, 0.0, line);
  cephalo_mask_destroy(mask);
}

static void test_attend(void) {
  attend_with(NULL, all, __LINE__);
  CHECK_OK(cephalo_attend(&q, &k, &v, NULL, NULL, &context, NULL));

  cephalo_attend_options options = cephalo_attend_options_default();
  CHECK(isnan(options.scale) && options.softcap == 0.0 && options.dropout == 0.0);
  options.scale = 0.3;
  options.softcap = 0.2;
  options.threads = 2;
  const int32_t engines[] = {CEPHALO_ENGINE_AUTO, CEPHALO_ENGINE_REFERENCE, CEPHALO_ENGINE_FUSED};
  for (int e = 0; e < 3; ++e) {
    options.engine = engines[e];
    CHECK_OK(cephalo_attend(&q, &k, &v, NULL, &options, &context, &lse));
    check_attended(all, 0.3, 0.2, __LINE__);
  }
}

static void test_positions_and_masks(void) {
  cephalo_mask* mask = new_mask();
  attend_with(mask, all, __LINE__);

  mask = new_mask();
  CHECK_OK(cephalo_mask_causal(mask, 0));
  attend_with(mask, lower, __LINE__);

  mask = new_mask();
  CHECK_OK(cephalo_mask_causal(mask, 2));
  attend_with(mask, lower_or_first_two, __LINE__);

  mask = new_mask();
  CHECK_OK(cephalo_mask_window(mask, 1, CEPHALO_UNLIMITED));
  CHECK_OK(cephalo_mask_window(mask, CEPHALO_UNLIMITED, 0));
  attend_with(mask, itself_and_one_before, __LINE__);

  mask = new_mask();  // the first query sees nothing
  CHECK_OK(cephalo_mask_positions(mask, CEPHALO_ALIGN_TOP_LEFT, -1));
  CHECK_OK(cephalo_mask_causal(mask, 0));
  attend_with(mask, earlier_by_one, __LINE__);

  mask = new_mask();
  const int64_t length = 2;
  CHECK_OK(cephalo_mask_lengths(mask, &length, &length, 1));
  attend_with(mask, first_two_keys, __LINE__);
}

static void test_tensors_in_masks(void) {
  int32_t ids[TOKENS] = {7, 0, 0};
  cephalo_tensor documents = vector(ids, CEPHALO_INT32, TOKENS);
  cephalo_mask* mask = new_mask();
  CHECK_OK(cephalo_mask_documents(mask, &documents, NULL));
  attend_with(mask, same_document, __LINE__);
  mask = new_mask();
  CHECK_OK(cephalo_mask_documents(mask, &documents, &documents));
  attend_with(mask, same_document, __LINE__);

  unsigned char diagonal[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
  unsigned char rest[9] = {0, 1, 1, 1, 0, 1, 1, 1, 0};
  cephalo_tensor dropped = matrix(diagonal, CEPHALO_UINT8, 3, 3);
  cephalo_tensor kept = matrix(rest, CEPHALO_BOOL, 3, 3);
  mask = new_mask();
  CHECK_OK(cephalo_mask_drop(mask, &dropped));
  attend_with(mask, not_the_diagonal, __LINE__);
  mask = new_mask();
  CHECK_OK(cephalo_mask_keep(mask, &kept));
  attend_with(mask, not_the_diagonal, __LINE__);

  float added[9];
  for (int n = 0; n < 9; ++n) added[n] = (float)biased(n / 3, n % 3).added;
  added[5] = -INFINITY;
  cephalo_tensor bias = matrix(added, CEPHALO_FLOAT32, 3, 3);
  mask = new_mask();
  CHECK_OK(cephalo_mask_bias(mask, &bias));
  attend_with(mask, biased, __LINE__);

  const float slope = 0.5F;
  mask = new_mask();
  CHECK_OK(cephalo_mask_causal(mask, 0));
  CHECK_OK(cephalo_mask_alibi(mask, &slope, 1));
  attend_with(mask, by_distance, __LINE__);
  mask = new_mask();
  CHECK_OK(cephalo_mask_alibi(mask, NULL, 1));  // 2^-8 for one head
  CHECK_OK(cephalo_attend(&q, &k, &v, mask, NULL, &context, &lse));
  cephalo_mask_destroy(mask);
}

// Results land where the strides say, and nowhere else.
static void test_output_strides(void) {
  float wide[2 * TOKENS];
  for (int n = 0; n < 2 * TOKENS; ++n) wide[n] = -1.0F;
  cephalo_tensor spread = context;
  spread.data = wide + 2 * (TOKENS - 1);
  spread.strides[0] = -2;
  CHECK_OK(cephalo_attend(&q, &k, &v, NULL, NULL, &spread, &lse));
  for (int i = 0; i < TOKENS; ++i) {
    context_data[i] = wide[2 * (TOKENS - 1 - i)];
    CHECK(wide[2 * i + 1] == -1.0F);
  }
  check_attended(all, 1.0, 0.0, __LINE__);
}

static void test_attend_errors(void) {
  CHECK_ERROR(cephalo_attend(NULL, &k, &v, NULL, NULL, &context, NULL), CEPHALO_ERROR_VALUE,
              "cephalo_attend: q is NULL");
  CHECK_ERROR(cephalo_attend(&q, &k, &v, NULL, NULL, NULL, NULL), CEPHALO_ERROR_VALUE,
              "cephalo_attend: context_out is NULL");
  cephalo_tensor wrong = k;
  wrong.data = NULL;
  CHECK_ERROR(cephalo_attend(&q, &wrong, &v, NULL, NULL, &context, NULL), CEPHALO_ERROR_VALUE,
              "the data of k [3, 1] is NULL");
  wrong = v;
  wrong.dtype = 99;
  CHECK_ERROR(cephalo_attend(&q, &k, &wrong, NULL, NULL, &context, NULL), CEPHALO_ERROR_TYPE,
              "v has the unknown dtype 99");
  wrong.dtype = CEPHALO_INT32;
  CHECK_ERROR(cephalo_attend(&q, &k, &wrong, NULL, NULL, &context, NULL), CEPHALO_ERROR_TYPE,
              "attend: v is int32");
  wrong = q;
  wrong.rank = 5;
  CHECK_ERROR(cephalo_attend(&wrong, &k, &v, NULL, NULL, &context, NULL), CEPHALO_ERROR_VALUE,
              "q has rank 5");
  wrong.rank = 1;
  CHECK_ERROR(cephalo_attend(&wrong, &k, &v, NULL, NULL, &context, NULL), CEPHALO_ERROR_VALUE,
              "attend: q [3] must be");
  wrong.rank = 2;
  wrong.shape[0] = -3;
  CHECK_ERROR(cephalo_attend(&wrong, &k, &v, NULL, NULL, &context, NULL), CEPHALO_ERROR_VALUE,
              "q has a dimension of -3");
  cephalo_attend_options options = cephalo_attend_options_default();
  options.engine = 9;
  CHECK_ERROR(cephalo_attend(&q, &k, &v, NULL, &options, &context, NULL), CEPHALO_ERROR_VALUE,
              "there is no engine 9");
  options.engine = CEPHALO_ENGINE_AUTO;
  options.arithmetic = 7;
  CHECK_ERROR(cephalo_attend(&q, &k, &v, NULL, &options, &context, NULL), CEPHALO_ERROR_VALUE,
              "there is no arithmetic 7");
  options.arithmetic = CEPHALO_BF16X3;  // a word for GPUs, which the CPU need not know
  CHECK_OK(cephalo_attend(&q, &k, &v, NULL, &options, &context, NULL));
  options.dropout = 1.0;
  CHECK_ERROR(cephalo_attend(&q, &k, &v, NULL, &options, &context, NULL), CEPHALO_ERROR_VALUE,
              "dropout (1) must be in [0, 1)");
  const uint64_t seed = 1;
  options.dropout = 0.5;
  options.device_seed = &seed;
  CHECK_ERROR(cephalo_attend(&q, &k, &v, NULL, &options, &context, NULL), CEPHALO_ERROR_VALUE,
              "device_seed is in a GPU's memory, q in the host's");
}

static void test_output_errors(void) {
  cephalo_tensor wrong = context;
  wrong.shape[0] = 2;
  CHECK_ERROR(cephalo_attend(&q, &k, &v, NULL, NULL, &wrong, NULL), CEPHALO_ERROR_VALUE,
              "context_out has shape [2, 1], the result is [3, 1]");
  wrong = context;
  wrong.dtype = CEPHALO_FLOAT64;
  CHECK_ERROR(cephalo_attend(&q, &k, &v, NULL, NULL, &wrong, NULL), CEPHALO_ERROR_TYPE,
              "context_out is float64, the result is float32");
  wrong = context;
  wrong.strides[0] = 0;
  CHECK_ERROR(cephalo_attend(&q, &k, &v, NULL, NULL, &wrong, NULL), CEPHALO_ERROR_VALUE,
              "context_out [3, 1] has stride 0 in axis 0");
  CHECK_ERROR(cephalo_attend(&q, &k, &v, NULL, NULL, &context, &context), CEPHALO_ERROR_VALUE,
              "lse_out has shape [3, 1], the result is [3]");
}

static void test_mask_errors(void) {
  CHECK_ERROR(cephalo_mask_create(NULL), CEPHALO_ERROR_VALUE, "cephalo_mask_create: mask is NULL");
  CHECK_ERROR(cephalo_mask_causal(NULL, 0), CEPHALO_ERROR_VALUE, "mask is NULL");
  cephalo_mask_destroy(NULL);
  cephalo_mask* mask = new_mask();
  CHECK_OK(cephalo_mask_causal(mask, 0));
  CHECK_ERROR(cephalo_mask_causal(mask, -1), CEPHALO_ERROR_VALUE, "causal: prefix (-1)");
  CHECK_ERROR(cephalo_mask_window(mask, -1, 0), CEPHALO_ERROR_VALUE, "window: left (-1)");
  CHECK_ERROR(cephalo_mask_positions(mask, 7, 0), CEPHALO_ERROR_VALUE, "no alignment 7");
  CHECK_ERROR(cephalo_mask_lengths(mask, NULL, NULL, 1), CEPHALO_ERROR_VALUE, "kv is NULL");
  CHECK_ERROR(cephalo_mask_documents(mask, NULL, NULL), CEPHALO_ERROR_VALUE, "q_ids is NULL");
  CHECK_ERROR(cephalo_mask_keep(mask, NULL), CEPHALO_ERROR_VALUE, "cephalo_mask_keep: t is NULL");
  CHECK_ERROR(cephalo_mask_keep(mask, &q), CEPHALO_ERROR_TYPE, "use bias(t)");
  CHECK_ERROR(cephalo_mask_alibi(mask, NULL, 0), CEPHALO_ERROR_VALUE, "num_heads (0)");
  attend_with(mask, lower, __LINE__);  // what was refused has changed nothing

  mask = new_mask();
  const int64_t lengths[2] = {1, 1};
  CHECK_OK(cephalo_mask_lengths(mask, lengths, NULL, 2));
  CHECK_ERROR(cephalo_mask_lengths(mask, lengths, NULL, 2), CEPHALO_ERROR_VALUE, "two lengths()");
  CHECK_ERROR(cephalo_attend(&q, &k, &v, mask, NULL, &context, NULL), CEPHALO_ERROR_VALUE,
              "lengths");
  cephalo_mask_destroy(mask);
}

// The definition backwards, for the lower triangle: dscores = weights · (dweights − their mean).
static void check_backward(const float* dcontext, const float* dq, const float* dk,
                           const float* dv) {
  double wanted_k[TOKENS] = {0.0}, wanted_v[TOKENS] = {0.0};
  for (int i = 0; i < TOKENS; ++i) {
    double wanted_q = 0.0, sum = 0.0, mean = 0.0, weights[TOKENS];
    for (int j = 0; j <= i; ++j) sum += weights[j] = exp((double)q_data[i] * (double)k_data[j]);
    for (int j = 0; j <= i; ++j) mean += (weights[j] /= sum) * (double)v_data[j];
    for (int j = 0; j <= i; ++j) {
      const double dscore = weights[j] * (double)dcontext[i] * ((double)v_data[j] - mean);
      wanted_q += dscore * (double)k_data[j];
      wanted_k[j] += dscore * (double)q_data[i];
      wanted_v[j] += weights[j] * (double)dcontext[i];
    }
    CHECK(near(dq[i] / 10.0, wanted_q / 10.0));
  }
  for (int j = 0; j < TOKENS; ++j) {
    CHECK(near(dk[j] / 10.0, wanted_k[j] / 10.0));
    CHECK(near(dv[j], wanted_v[j]));
  }
}

static void test_attend_backward(void) {
  cephalo_mask* mask = new_mask();
  CHECK_OK(cephalo_mask_causal(mask, 0));
  CHECK_OK(cephalo_attend(&q, &k, &v, mask, NULL, &context, &lse));
  float back[TOKENS] = {1.0F, -0.5F, 2.0F};
  float dq_data[TOKENS], dk_data[TOKENS], dv_data[TOKENS];
  cephalo_tensor dcontext = matrix(back, CEPHALO_FLOAT32, TOKENS, 1);
  cephalo_tensor dq = matrix(dq_data, CEPHALO_FLOAT32, TOKENS, 1);
  cephalo_tensor dk = matrix(dk_data, CEPHALO_FLOAT32, TOKENS, 1);
  cephalo_tensor dv = matrix(dv_data, CEPHALO_FLOAT32, TOKENS, 1);
  cephalo_attend_gradients gradients = {&context, &lse, &dcontext, NULL, &dq, &dk, &dv};
  cephalo_attend_options options = cephalo_attend_options_default();
  const int32_t engines[] = {CEPHALO_ENGINE_AUTO, CEPHALO_ENGINE_REFERENCE, CEPHALO_ENGINE_FUSED};
  for (int e = 0; e < 3; ++e) {
    options.engine = engines[e];
    CHECK_OK(cephalo_attend_backward(&q, &k, &v, mask, &options, &gradients));
    check_backward(back, dq_data, dk_data, dv_data);
  }

  CHECK_ERROR(cephalo_attend_backward(&q, &k, &v, mask, NULL, NULL), CEPHALO_ERROR_VALUE,
              "cephalo_attend_backward: gradients is NULL");
  gradients.lse = NULL;
  CHECK_ERROR(cephalo_attend_backward(&q, &k, &v, mask, NULL, &gradients), CEPHALO_ERROR_VALUE,
              "lse is NULL");
  gradients.lse = &lse;
  dk.strides[0] = 0;
  CHECK_ERROR(cephalo_attend_backward(&q, &k, &v, mask, NULL, &gradients), CEPHALO_ERROR_VALUE,
              "dk_out [3, 1] has stride 0 in axis 0");
  dk.strides[0] = 1;
  dv.shape[0] = 2;
  CHECK_ERROR(cephalo_attend_backward(&q, &k, &v, mask, NULL, &gradients), CEPHALO_ERROR_VALUE,
              "dv_out has shape [2, 1], the result is [3, 1]");
  cephalo_mask_destroy(mask);
}

// A bfloat16 is the upper half of a float32. These numbers need no more than that.
static uint16_t narrow(float number) {
  uint32_t bits;
  memcpy(&bits, &number, sizeof bits);
  CHECK((bits & 0xFFFFU) == 0);
  return (uint16_t)(bits >> 16);
}
static float widen(uint16_t number) {
  const uint32_t bits = (uint32_t)number << 16;
  float wide;
  memcpy(&wide, &bits, sizeof wide);
  return wide;
}

// q, k, v, context, dcontext; dq, dk, dv: three tokens of width 1, in float32 and in bfloat16.
static void test_attend_backward_of_16_bits(void) {
  const float numbers[5][TOKENS] = {
      {0.5F, -1.0F, 0.25F}, {1.5F, 0.75F, -0.5F}, {1.0F, -2.0F, 0.5F}, {0.0F}, {1.0F, -0.5F, 2.0F}};
  float wide[8][TOKENS], sums[TOKENS];
  uint16_t half[8][TOKENS];
  cephalo_tensor w[8], h[8], lse_out = vector(sums, CEPHALO_FLOAT32, TOKENS);
  for (int n = 0; n < 8; ++n) {
    w[n] = matrix(wide[n], CEPHALO_FLOAT32, TOKENS, 1);
    h[n] = matrix(half[n], CEPHALO_BFLOAT16, TOKENS, 1);
    for (int i = 0; i < TOKENS && n < 5; ++i) half[n][i] = narrow(wide[n][i] = numbers[n][i]);
  }
  cephalo_attend_gradients of_wide = {&w[3], &lse_out, &w[4], NULL, &w[5], &w[6], &w[7]};
  cephalo_attend_gradients of_half = {&h[3], &lse_out, &h[4], NULL, &h[5], &h[6], &h[7]};
  CHECK_OK(cephalo_attend(&w[0], &w[1], &w[2], NULL, NULL, &w[3], &lse_out));
  CHECK_OK(cephalo_attend_backward(&w[0], &w[1], &w[2], NULL, NULL, &of_wide));
  CHECK_OK(cephalo_attend(&h[0], &h[1], &h[2], NULL, NULL, &h[3], &lse_out));
  CHECK_OK(cephalo_attend_backward(&h[0], &h[1], &h[2], NULL, NULL, &of_half));
  // All numbers are about 1: half a unit of the last place, and as much from the stored context.
  for (int n = 5; n < 8; ++n) {
    for (int i = 0; i < TOKENS; ++i)
      CHECK(fabs((double)(widen(half[n][i]) - wide[n][i])) <= 0x1p-7);
  }
  of_half.dq_out = &w[5];
  CHECK_ERROR(cephalo_attend_backward(&h[0], &h[1], &h[2], NULL, NULL, &of_half),
              CEPHALO_ERROR_TYPE, "dq_out is float32, the result is bfloat16");
}

// A pass of three tokens of width 1 in float64 at some step along a direction, with its gradients.
enum { WIDE_Q, WIDE_K, WIDE_V, WIDE_CONTEXT, WIDE_BACK, WIDE_DQ, WIDE_DK, WIDE_DV, WIDE_COUNT };
typedef struct wide_pass {
  double data[WIDE_COUNT][TOKENS];
  cephalo_tensor t[WIDE_COUNT];
  double sums[TOKENS];
  cephalo_tensor lse;
} wide_pass;

static double direction[3][TOKENS] = {{1.0, 0.5, -2.0}, {0.3, -1.0, 0.8}, {-0.6, 1.5, 0.1}};

static void make_wide_pass(wide_pass* p, double step) {
  const double begin[5][TOKENS] = {
      {0.5, -1.0, 0.3}, {0.2, 0.7, -0.4}, {1.0, -2.0, 0.5}, {0.0, 0.0, 0.0}, {1.0, -0.5, 2.0}};
  for (int n = 0; n < WIDE_COUNT; ++n) {
    p->t[n] = matrix(p->data[n], CEPHALO_FLOAT64, TOKENS, 1);
    for (int i = 0; i < TOKENS && n < 5; ++i) {
      p->data[n][i] = begin[n][i] + (n < 3 ? step * direction[n][i] : 0.0);
    }
  }
  p->lse = vector(p->sums, CEPHALO_FLOAT64, TOKENS);
  cephalo_tensor* t = p->t;
  CHECK_OK(
      cephalo_attend(&t[WIDE_Q], &t[WIDE_K], &t[WIDE_V], NULL, NULL, &t[WIDE_CONTEXT], &p->lse));
  const cephalo_attend_gradients gradients = {&t[WIDE_CONTEXT], &p->lse,     &t[WIDE_BACK], NULL,
                                              &t[WIDE_DQ],      &t[WIDE_DK], &t[WIDE_DV]};
  CHECK_OK(cephalo_attend_backward(&t[WIDE_Q], &t[WIDE_K], &t[WIDE_V], NULL, NULL, &gradients));
}

// Second derivatives are the differences of gradients, and tangents those of results.
static void test_attend_second(void) {
  const double step = 1e-5;
  wide_pass now, ahead, behind;
  make_wide_pass(&now, 0.0);
  make_wide_pass(&ahead, step);
  make_wide_pass(&behind, -step);
  double h_data[5][TOKENS], tcontext_data[TOKENS], tlse_data[TOKENS];
  cephalo_tensor u[3], h[5];
  for (int n = 0; n < 3; ++n) u[n] = matrix(direction[n], CEPHALO_FLOAT64, TOKENS, 1);
  for (int n = 0; n < 4; ++n) h[n] = matrix(h_data[n], CEPHALO_FLOAT64, TOKENS, 1);
  h[4] = vector(h_data[4], CEPHALO_FLOAT64, TOKENS);
  cephalo_tensor tcontext = matrix(tcontext_data, CEPHALO_FLOAT64, TOKENS, 1);
  cephalo_tensor tlse = vector(tlse_data, CEPHALO_FLOAT64, TOKENS);
  const cephalo_tensor* t = now.t;
  cephalo_attend_tangents tangents = {&t[WIDE_CONTEXT], &now.lse, &u[0], &u[1], &u[2],
                                      &tcontext,        &tlse};
  CHECK_OK(cephalo_attend_tangent(&t[WIDE_Q], &t[WIDE_K], &t[WIDE_V], NULL, NULL, &tangents));
  cephalo_attend_seconds seconds = {&t[WIDE_CONTEXT],
                                    &now.lse,
                                    &t[WIDE_BACK],
                                    NULL,
                                    &u[0],
                                    &u[1],
                                    &u[2],
                                    &h[0],
                                    &h[1],
                                    &h[2],
                                    &h[3],
                                    &h[4]};
  CHECK_OK(cephalo_attend_second(&t[WIDE_Q], &t[WIDE_K], &t[WIDE_V], NULL, NULL, &seconds));
  for (int i = 0; i < TOKENS; ++i) {
    for (int n = 0; n < 3; ++n) {
      const double slope = ahead.data[WIDE_DQ + n][i] - behind.data[WIDE_DQ + n][i];
      CHECK(fabs(slope / (2.0 * step) - h_data[n][i]) < 1e-8);
    }
    const double slope = ahead.data[WIDE_CONTEXT][i] - behind.data[WIDE_CONTEXT][i];
    CHECK(fabs(slope / (2.0 * step) - tcontext_data[i]) < 1e-8);
    CHECK(tcontext_data[i] == h_data[3][i] && tlse_data[i] == h_data[4][i]);
  }

  const cephalo_tensor *q1 = &t[WIDE_Q], *k1 = &t[WIDE_K], *v1 = &t[WIDE_V];
  CHECK_ERROR(cephalo_attend_tangent(q1, k1, v1, NULL, NULL, NULL), CEPHALO_ERROR_VALUE,
              "cephalo_attend_tangent: tangents is NULL");
  CHECK_ERROR(cephalo_attend_second(q1, k1, v1, NULL, NULL, NULL), CEPHALO_ERROR_VALUE,
              "cephalo_attend_second: seconds is NULL");
  tangents.tlse_out = NULL;
  CHECK_ERROR(cephalo_attend_tangent(q1, k1, v1, NULL, NULL, &tangents), CEPHALO_ERROR_VALUE,
              "tlse_out is NULL");
  seconds.hk_out = &h[4];
  CHECK_ERROR(cephalo_attend_second(q1, k1, v1, NULL, NULL, &seconds), CEPHALO_ERROR_VALUE,
              "hk_out has shape [3], the result is [3, 1]");
  seconds.hk_out = &h[1];
  seconds.uq = &tlse;
  CHECK_ERROR(cephalo_attend_second(q1, k1, v1, NULL, NULL, &seconds), CEPHALO_ERROR_VALUE,
              "the direction of q is [3], expected [3, 1]");
}

static cephalo_layer_options small_layer(void) {
  cephalo_layer_options options = cephalo_layer_options_default();
  options.d_in = 1;
  options.d_out = 1;
  options.causal = 0;
  options.out_bias = 0;
  return options;
}

// Width 1 and every weight 1: the layer is attend(x, x, x).
static void test_layer(void) {
  const cephalo_layer_options options = small_layer();
  cephalo_layer* layer = NULL;
  CHECK_OK(cephalo_layer_create(&options, &layer));
  float one = 1.0F;
  const cephalo_tensor weight = matrix(&one, CEPHALO_FLOAT32, 1, 1);
  const char* const names[] = {"W_query.weight", "W_key.weight", "W_value.weight",
                               "out_proj.weight"};
  for (int n = 0; n < 4; ++n) CHECK_OK(cephalo_layer_set_parameter(layer, names[n], &weight));
  CHECK_OK(cephalo_layer_train(layer));
  CHECK_OK(cephalo_layer_eval(layer));
  float expected[TOKENS];
  cephalo_tensor y = matrix(expected, CEPHALO_FLOAT32, TOKENS, 1);
  CHECK_OK(cephalo_layer_forward(layer, &q, &y, 1));
  CHECK_OK(cephalo_attend(&q, &q, &q, NULL, NULL, &context, NULL));
  for (int i = 0; i < TOKENS; ++i) CHECK(near(expected[i], context_data[i]));

  CHECK_ERROR(cephalo_layer_set_parameter(layer, "W_quary.weight", &weight), CEPHALO_ERROR_VALUE,
              "W_query.weight");
  CHECK_ERROR(cephalo_layer_set_parameter(layer, NULL, &weight), CEPHALO_ERROR_VALUE,
              "name is NULL");
  CHECK_ERROR(cephalo_layer_set_parameter(layer, names[0], &q), CEPHALO_ERROR_VALUE,
              "W_query.weight has shape [1, 1], not [3, 1]");
  y.shape[0] = 2;
  CHECK_ERROR(cephalo_layer_forward(layer, &q, &y, 0), CEPHALO_ERROR_VALUE,
              "y_out has shape [2, 1], the result is [3, 1]");
  CHECK_ERROR(cephalo_layer_forward(layer, &q, NULL, 0), CEPHALO_ERROR_VALUE, "y_out is NULL");
  CHECK_ERROR(cephalo_layer_forward(layer, &lse, &lse, 0), CEPHALO_ERROR_VALUE, "y_out has shape");
  CHECK_ERROR(cephalo_layer_forward(layer, &q, &context, -1), CEPHALO_ERROR_VALUE, "threads (-1)");
  cephalo_layer_destroy(layer);
}

// Each mistake in a backward pass has a message, and changes nothing.
static void test_layer_backward_errors(void) {
  const cephalo_layer_options options = small_layer();
  cephalo_layer* layer = NULL;
  cephalo_pass* pass = NULL;
  cephalo_gradients* gradients = NULL;
  CHECK_OK(cephalo_layer_create(&options, &layer));
  CHECK_ERROR(cephalo_gradients_create(NULL, &gradients), CEPHALO_ERROR_VALUE, "layer is NULL");
  CHECK_ERROR(cephalo_gradients_create(layer, NULL), CEPHALO_ERROR_VALUE, "gradients is NULL");
  CHECK_OK(cephalo_gradients_create(layer, &gradients));
  CHECK_ERROR(cephalo_layer_forward_train(layer, &q, &context, 1, NULL), CEPHALO_ERROR_VALUE,
              "pass is NULL");
  CHECK_ERROR(cephalo_layer_forward_train(layer, &q, &lse, 1, &pass), CEPHALO_ERROR_VALUE,
              "y_out has shape [3], the result is [3, 1]");
  CHECK(pass == NULL);
  CHECK_OK(cephalo_layer_forward_train(layer, &q, &context, 1, &pass));
  CHECK_ERROR(cephalo_layer_backward(layer, NULL, &v, NULL, gradients), CEPHALO_ERROR_VALUE,
              "pass is NULL");
  CHECK_ERROR(cephalo_layer_backward(layer, pass, &v, NULL, NULL), CEPHALO_ERROR_VALUE,
              "gradients is NULL");
  CHECK_ERROR(cephalo_layer_backward(layer, pass, &lse, NULL, gradients), CEPHALO_ERROR_VALUE,
              "dy is [3], y is [3, 1]");
  CHECK_ERROR(cephalo_layer_backward(layer, pass, &v, &lse, gradients), CEPHALO_ERROR_VALUE,
              "dx_out has shape [3], the result is [3, 1]");
  float found = 1.0F;
  cephalo_tensor value = matrix(&found, CEPHALO_FLOAT32, 1, 1);
  CHECK_OK(cephalo_gradients_get(gradients, "out_proj.weight", &value));
  CHECK(found == 0.0F);
  CHECK_ERROR(cephalo_gradients_get(gradients, "out_proj.bias", &value), CEPHALO_ERROR_VALUE,
              "out_proj.weight");
  CHECK_ERROR(cephalo_gradients_get(gradients, "out_proj.weight", &q), CEPHALO_ERROR_VALUE,
              "value_out has shape [3, 1], the result is [1, 1]");
  CHECK_OK(cephalo_layer_set_parameter(layer, "out_proj.weight", &value));
  CHECK_ERROR(cephalo_layer_backward(layer, pass, &v, NULL, gradients), CEPHALO_ERROR_VALUE,
              "the parameters changed after this pass");
  CHECK_ERROR(cephalo_gradients_zero(NULL), CEPHALO_ERROR_VALUE, "gradients is NULL");
  cephalo_pass_destroy(pass);
  cephalo_pass_destroy(NULL);
  cephalo_gradients_destroy(gradients);
  cephalo_gradients_destroy(NULL);
  cephalo_layer_destroy(layer);
}

static void test_layer_errors(void) {
  cephalo_layer* layer = NULL;
  cephalo_layer_options options = small_layer();
  CHECK_ERROR(cephalo_layer_create(NULL, &layer), CEPHALO_ERROR_VALUE, "options is NULL");
  CHECK_ERROR(cephalo_layer_create(&options, NULL), CEPHALO_ERROR_VALUE, "layer is NULL");
  options.num_heads = 3;
  options.d_out = 8;
  CHECK_ERROR(cephalo_layer_create(&options, &layer), CEPHALO_ERROR_VALUE,
              "d_out (8) must be divisible by num_heads (3); 2 or 4 heads fit");
  options.num_heads = 1;
  options.dtype = CEPHALO_INT8;
  CHECK_ERROR(cephalo_layer_create(&options, &layer), CEPHALO_ERROR_TYPE, "int8");
  options.dtype = CEPHALO_FLOAT32;
  options.d_in = INT64_C(1) << 40;  // the machine cannot hold it
  CHECK_ERROR(cephalo_layer_create(&options, &layer), CEPHALO_ERROR_MEMORY, "GiB");
  CHECK_ERROR(cephalo_layer_load("no such file", 0, &layer), CEPHALO_ERROR_IO, "no such file");
  CHECK_ERROR(cephalo_layer_load(NULL, 0, &layer), CEPHALO_ERROR_VALUE, "path is NULL");
  CHECK_ERROR(cephalo_layer_forward(NULL, &q, &context, 0), CEPHALO_ERROR_VALUE, "layer is NULL");
  CHECK_ERROR(cephalo_layer_train(NULL), CEPHALO_ERROR_VALUE, "layer is NULL");
  CHECK_ERROR(cephalo_layer_eval(NULL), CEPHALO_ERROR_VALUE, "layer is NULL");
  CHECK(layer == NULL);
  cephalo_layer_destroy(NULL);
}

int main(void) {
  CHECK(strcmp(cephalo_last_error(), "") == 0);
  CHECK(strlen(cephalo_version()) >= 5);
  CHECK_ERROR(cephalo_set_threads(-1), CEPHALO_ERROR_VALUE, "count (-1)");
  CHECK_OK(cephalo_set_threads(2));
  make_tensors();
  test_attend();
  test_positions_and_masks();
  test_tensors_in_masks();
  test_output_strides();
  test_attend_backward();
  test_attend_backward_of_16_bits();
  test_attend_second();
  test_attend_errors();
  test_output_errors();
  test_mask_errors();
  test_layer();
  test_layer_errors();
  test_layer_backward_errors();
  return failures == 0 ? 0 : 1;
}
