# What makes the page's engine small, and its build short. The build is MinSizeRel; made for speed are
# the kernels, and what reads parameters, which the first picture waits for.
get_target_property(engine_files cephalo_objects SOURCES)
list(FILTER engine_files EXCLUDE REGEX "cephalo/(train|learn)/|cephalo/effects/(attribution|beginning|branches|circuits|experiment_walk|kept_pass|lens|patching|readout|run|site|sweep|taps)[.]|cephalo/c_api|(font|page)_files?[.]cc|io/base64[.]cc|cephalo/view/(colour|columns|effects.*|font|head_trace.*|head_picture|lens_report|page|page_parts|patch_report|picture|picture_svg|pixels|png|recorded_file|recorded_page|report_page|report_picture|report_tables|split_.*|terminal)[.]cc")
set_target_properties(cephalo_objects PROPERTIES SOURCES "${engine_files}")
target_compile_definitions(cephalo_objects PRIVATE CEPHALO_ENGINE)
list(FILTER engine_files INCLUDE REGEX "^cephalo/(kernels/cpu/|core/(finite|tensor)[.])")
set_source_files_properties(${engine_files} PROPERTIES COMPILE_OPTIONS -O2)
# Memory is filled and copied by the browser itself. Not everywhere: with it Debian's compiler keeps
# thread_local, which the linker then refuses without threads.
set_source_files_properties(cephalo/core/tensor.cc PROPERTIES COMPILE_OPTIONS "-O2;-mbulk-memory")
# Without it fmt asks std::locale for the separator of thousands, and brings 80 KB along.
set_source_files_properties(cephalo/core/format.cc PROPERTIES
                            COMPILE_DEFINITIONS "FMT_STATIC_THOUSANDS_SEPARATOR=','")
