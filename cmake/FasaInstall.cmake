# What is installed of the command: `cmake --install BUILD --component fasa`, the packages that CPack
# makes of a build (tools/package), and the wheel.
include(GNUInstallDirs)
set(shipped_models ${PROJECT_SOURCE_DIR}/models/needle-3m ${PROJECT_SOURCE_DIR}/models/texts
                   ${PROJECT_SOURCE_DIR}/models/traces)
if(SKBUILD)
  # GCC 12's libstdc++ is newer than that of systems with glibc 2.34 (manylinux_2_34).
  foreach(target fasa fasa_python_core fasa_python_studies)
    target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/old_glibc.cc)
    target_link_options(${target} PRIVATE -static-libstdc++ LINKER:--exclude-libs,ALL)
  endforeach()
  install(TARGETS fasa RUNTIME DESTINATION fasa/bin COMPONENT python)
  install(DIRECTORY ${shipped_models} DESTINATION fasa/models COMPONENT python)
  return()
endif()

# The tarball has the libraries beside the program. An RPATH, unlike a RUNPATH, holds for the
# libraries that libraries need.
target_link_options(fasa PRIVATE LINKER:--disable-new-dtags)
set_target_properties(fasa PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/fasa")
install(TARGETS fasa RUNTIME_DEPENDENCY_SET fasa_libraries
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT fasa)
install(RUNTIME_DEPENDENCY_SET fasa_libraries
        PRE_EXCLUDE_REGEXES "^lib(c|m|dl|rt|pthread)[.]so" "^ld-linux" "^libcuda[.]so"
        LIBRARY DESTINATION lib/fasa COMPONENT fasa_libraries EXCLUDE_FROM_ALL)
install(DIRECTORY fasa_metrics DESTINATION ${CMAKE_INSTALL_DATADIR}/fasa COMPONENT fasa
        PATTERN __pycache__ EXCLUDE)
install(DIRECTORY ${shipped_models} DESTINATION ${CMAKE_INSTALL_DATADIR}/fasa/models COMPONENT fasa)
if(TARGET fasa_http)
  configure_file(${PROJECT_SOURCE_DIR}/bindings/http/fasa.service.in fasa.service @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/fasa.service DESTINATION lib/systemd/system
          COMPONENT fasa)
  # The terms of its page's scripts.
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/bindings/http/vendor/ COMPONENT fasa
          DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.copyright")
endif()
# The terms of the reports' script.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/tools/report/vendor/ COMPONENT fasa
        DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.copyright")
# Manual pages and completions, written by the program itself.
set(pages ${CMAKE_CURRENT_BINARY_DIR}/pages)
install(CODE "execute_process(COMMAND $<TARGET_FILE:fasa> pages ${pages} COMMAND_ERROR_IS_FATAL ANY)"
        COMPONENT fasa)
install(DIRECTORY ${pages}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT fasa)
install(FILES ${pages}/completions/fasa.bash RENAME fasa COMPONENT fasa
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)

# cpack -G DEB: the command and the C library, which needs nothing but Debian's libraries.
set(CPACK_PACKAGE_NAME fasa)
set(CPACK_PACKAGE_VENDOR fasa)
set(CPACK_PACKAGE_CONTACT "fasa maintainers <maintainers@fasa.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Long contexts on small GPUs: sparse attention over a tiered KV cache")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL fasa fasa_c)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "python3-venv")
include(CPack)
