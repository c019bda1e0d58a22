#include <cephalo/c_api.h>
#include <stdio.h>

// Two keys that are alike: the context is the mean of their values.
int main(void) {
  float numbers[] = {0.0F, 0.0F, 1.0F, 2.0F, 0.0F};
  const cephalo_tensor q = {numbers, CEPHALO_FLOAT32, 2, {1, 1}, {1, 1}};
  const cephalo_tensor k = {numbers, CEPHALO_FLOAT32, 2, {2, 1}, {1, 1}};
  const cephalo_tensor v = {numbers + 2, CEPHALO_FLOAT32, 2, {2, 1}, {1, 1}};
  const cephalo_tensor context = {numbers + 4, CEPHALO_FLOAT32, 2, {1, 1}, {1, 1}};
  if (cephalo_attend(&q, &k, &v, NULL, NULL, &context, NULL) != CEPHALO_OK) {
    fprintf(stderr, "%s\n", cephalo_last_error());
    return 1;
  }
  printf("%s %g\n", cephalo_version(), (double)numbers[4]);
  return 0;
}
