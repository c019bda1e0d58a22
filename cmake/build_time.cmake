# What makes a build from nothing short; none of it changes a result.

# No precompiled headers: GCC 12 then warns inside of std::string of what cannot happen, and crashed
# on a test.

# optimise_less(TARGET): it parses, checks and prints; what takes time is elsewhere.
function(optimise_less target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# Sources of the library of which the same is true: names, settings, files' headers, drawings.
set(sources_without_arithmetic
  cephalo/core/format.cc
  cephalo/core/number_text.cc
  cephalo/core/print.cc
  cephalo/mask/mask_text.cc
  cephalo/io/config_keys.cc
  cephalo/io/json.cc
  cephalo/io/json_members.cc
  cephalo/io/json_value.cc
  cephalo/io/safetensors_header.cc
  cephalo/io/safetensors_index.cc
  cephalo/attention/plan.cc
  cephalo/attention/layer/layer_config.cc
  cephalo/attention/layer/layer_file.cc
  cephalo/model/builtin.cc
  cephalo/model/families.cc
  cephalo/model/file_names.cc
  cephalo/model/gpt_config.cc
  cephalo/model/gpt_file.cc
  cephalo/model/gpt_options.cc
  cephalo/model/gpt_options_json.cc
  cephalo/model/presets.cc
  cephalo/model/text_model.cc
  cephalo/train/best_model.cc
  cephalo/train/checkpoint.cc
  cephalo/train/history.cc
  cephalo/train/run_folder.cc
  cephalo/train/trainer_json.cc
  cephalo/effects/change.cc
  cephalo/effects/patching.cc
  cephalo/effects/site.cc
  cephalo/view/columns.cc
  cephalo/view/effects_json.cc
  cephalo/view/effects_page.cc
  cephalo/view/effects_report.cc
  cephalo/view/effects_words.cc
  cephalo/view/head_links.cc
  cephalo/view/head_picture.cc
  cephalo/view/head_trace.cc
  cephalo/view/head_trace_json.cc
  cephalo/view/head_trace_text.cc
  cephalo/view/lens_report.cc
  cephalo/view/look.cc
  cephalo/view/look_json.cc
  cephalo/view/page.cc
  cephalo/view/page_parts.cc
  cephalo/view/patch_report.cc
  cephalo/view/picture.cc
  cephalo/view/picture_svg.cc
  cephalo/view/recorded_page.cc
  cephalo/view/report_head.cc
  cephalo/view/report_json.cc
  cephalo/view/report_page.cc
  cephalo/view/report_picture.cc
  cephalo/view/report_subject.cc
  cephalo/view/report_tables.cc
  cephalo/view/split_shapes.cc
  cephalo/view/split_svg.cc
  cephalo/view/split_text.cc
  cephalo/view/terminal.cc
  cephalo/learn/exercise.cc
  cephalo/learn/exercise_help.cc
  cephalo/learn/exercise_mistakes.cc
  cephalo/learn/ladder.cc
  cephalo/learn/pipeline.cc
  cephalo/learn/quiz.cc
  cephalo/learn/quiz_masks.cc
  cephalo/learn/quiz_shapes.cc
  cephalo/c_api.cc
  cephalo/c_api_support.cc
  cephalo/c_api_train.cc)
set_source_files_properties(${sources_without_arithmetic} PROPERTIES
                            COMPILE_OPTIONS $<$<CONFIG:Release>:-O1>)
