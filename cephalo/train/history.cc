#include "cephalo/train/history.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cephalo/core/fail.h"

namespace cephalo {
namespace {

struct Point {
  double x, y;
};
using Curve = std::vector<Point>;

constexpr double kWidth = 800, kHeight = 400, kLeft = 60, kRight = 20, kTop = 40, kBottom = 45;

// From numbers to places in the picture.
struct Axes {
  double last_step, low, high;

  double x(double step) const { return kLeft + step / last_step * (kWidth - kLeft - kRight); }
  double y(double loss) const {
    return kHeight - kBottom - (loss - low) / (high - low) * (kHeight - kTop - kBottom);
  }
};

// At most about `most` points, each the mean of its neighbours: a picture has no more columns, and
// single batches would hide the curve.
Curve thinned(const Curve& curve, std::size_t most) {
  const std::size_t each = (curve.size() + most - 1) / most;
  Curve thin;
  for (std::size_t begin = 0; begin < curve.size(); begin += each) {
    const std::size_t end = std::min(begin + each, curve.size());
    Point sum{0.0, 0.0};
    for (std::size_t k = begin; k < end; ++k) {
      sum.x += curve[k].x;
      sum.y += curve[k].y;
    }
    const auto count = static_cast<double>(end - begin);
    thin.push_back({sum.x / count, sum.y / count});
  }
  return thin;
}

// 1, 2 or 5 times a power of ten: about `count` of them in a range.
double tick_step(double range, double count) {
  const double raw = range / count;
  const double ten = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * ten >= raw) return factor * ten;
  }
  return 10.0 * ten;
}

std::string polyline(const Curve& curve, const Axes& axes, const char* colour) {
  std::string points;
  for (const Point& p : curve) {
    append_text(points, "{:.1f},{:.1f} ", axes.x(p.x), axes.y(p.y));
  }
  return format_text("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\" points=\"{}\"/>\n",
                     colour, points);
}

std::string grid(const Axes& axes) {
  std::string svg;
  const double loss_step = tick_step(axes.high - axes.low, 6);
  for (double k = std::ceil(axes.low / loss_step); k * loss_step <= axes.high; k += 1.0) {
    const double y = axes.y(k * loss_step);
    svg += format_text(
        "<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ddd\"/>"
        "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:g}</text>\n",
        kLeft, kWidth - kRight, y, y, kLeft - 6, y + 4, k * loss_step);
  }
  const double step = std::max(1.0, tick_step(axes.last_step, 8));
  for (double x = 0.0; x <= axes.last_step; x += step) {
    svg += format_text("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.0f}</text>\n",
                       axes.x(x), kHeight - kBottom + 18, x);
  }
  return svg;
}

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '<':
        safe += "&lt;";
        break;
      case '&':
        safe += "&amp;";
        break;
      default:
        safe += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return safe;
}

Axes axes_of(const Curve& training, const Curve& validation) {
  Axes axes{1.0, std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  for (const Curve* curve : {&training, &validation}) {
    for (const Point& p : *curve) {
      axes.last_step = std::max(axes.last_step, p.x);
      axes.low = std::min(axes.low, p.y);
      axes.high = std::max(axes.high, p.y);
    }
  }
  if (axes.low > axes.high) return {axes.last_step, 0.0, 1.0};
  const double margin = std::max(0.05 * (axes.high - axes.low), 0.01);
  return {axes.last_step, axes.low - margin, axes.high + margin};
}

}  // namespace

std::optional<ValidationRecord> best_validation(const TrainingHistory& history) {
  std::optional<ValidationRecord> best;
  for (const ValidationRecord& record : history.validation) {
    if (std::isfinite(record.loss) && (!best || record.loss < best->loss)) best = record;
  }
  return best;
}

std::string loss_csv(const TrainingHistory& history) {
  std::string csv = "step,loss,learning_rate,gradient_norm,skipped,validation_loss\n";
  auto validation = history.validation.begin();
  for (const StepRecord& r : history.steps) {
    append_text(csv, "{},{},{},{},{},", r.step, r.loss, r.learning_rate, r.gradient_norm,
                r.skipped ? 1 : 0);
    if (validation != history.validation.end() && validation->step == r.step) {
      append_text(csv, "{}", validation->loss);
      ++validation;
    }
    csv += '\n';
  }
  return csv;
}

std::string loss_svg(const TrainingHistory& history, const std::string& title) {
  constexpr const char* kTraining = "#4477aa";
  constexpr const char* kValidation = "#cc3311";
  Curve training, validation;
  for (const StepRecord& r : history.steps) {
    if (!r.skipped) training.push_back({static_cast<double>(r.step), r.loss});
  }
  for (const ValidationRecord& r : history.validation) {
    if (std::isfinite(r.loss)) validation.push_back({static_cast<double>(r.step), r.loss});
  }
  training = thinned(training, 400);
  const Axes axes = axes_of(training, validation);
  std::string svg = format_text(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
      "<text x=\"{}\" y=\"22\" font-size=\"14\">{}</text>\n",
      kWidth, kHeight, kLeft, escaped(title));
  svg += grid(axes);
  svg += polyline(training, axes, kTraining);
  svg += polyline(validation, axes, kValidation);
  for (const Point& p : validation) {
    svg += format_text("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\" fill=\"{}\"/>\n", axes.x(p.x),
                       axes.y(p.y), kValidation);
  }
  svg += format_text(
      "<text x=\"{0}\" y=\"{1}\" fill=\"{2}\">training loss</text>"
      "<text x=\"{3}\" y=\"{1}\" fill=\"{4}\">validation loss</text>"
      "<text x=\"{5}\" y=\"{1}\" text-anchor=\"end\">steps</text>\n</svg>\n",
      kLeft, kHeight - 8, kTraining, kLeft + 100, kValidation, kWidth - kRight);
  return svg;
}

}  // namespace cephalo
