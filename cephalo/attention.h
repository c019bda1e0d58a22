#pragma once

// Attention alone: functions of q, k and v, their masks and caches, and the layer. cephalo.h has
// models, training and pictures besides.
#include "cephalo/attention/attend.h"
#include "cephalo/attention/attend_backward.h"
#include "cephalo/attention/attend_second.h"
#include "cephalo/attention/kv_cache.h"
#include "cephalo/attention/layer/gradients.h"
#include "cephalo/attention/layer/layer_file.h"
#include "cephalo/attention/layer/multi_head.h"
#include "cephalo/attention/layer/saved_pass.h"
#include "cephalo/attention/plan.h"
#include "cephalo/attention/reference/trace.h"
#include "cephalo/attention/weights.h"
#include "cephalo/core/cpu.h"
#include "cephalo/core/error.h"
#include "cephalo/core/parallel.h"
#include "cephalo/core/random.h"
#include "cephalo/core/tensor.h"
#include "cephalo/core/version.h"
#include "cephalo/core/views.h"
#include "cephalo/mask/mask.h"
