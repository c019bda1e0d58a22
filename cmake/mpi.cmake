# Worlds of processes over MPI: one source, and one definition for the source that opens worlds.
set(MPI_CXX_SKIP_MPICXX TRUE)
find_package(MPI REQUIRED COMPONENTS CXX)
set(mpi_libraries MPI::MPI_CXX)
target_sources(cephalo_objects PRIVATE cephalo/world/mpi/mpi_world.cc)
target_link_libraries(cephalo_objects PRIVATE MPI::MPI_CXX)
set_source_files_properties(cephalo/world/open_world.cc PROPERTIES COMPILE_DEFINITIONS CEPHALO_MPI)
