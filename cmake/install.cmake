# cmake --install: the binary, the manual page and the completions. cpack: the same as a .deb.
include(GNUInstallDirs)
install(TARGETS ridge RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# The binary writes the manual page and the completions from the definitions of its options.
set(MADE ${CMAKE_BINARY_DIR}/share)
install(CODE "
  file(MAKE_DIRECTORY \"${MADE}\")
  foreach(SHELL bash zsh fish)
    execute_process(COMMAND \"$<TARGET_FILE:ridge>\" completion \${SHELL}
      OUTPUT_FILE \"${MADE}/ridge.\${SHELL}\" COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
  execute_process(COMMAND \"$<TARGET_FILE:ridge>\" manual
    OUTPUT_FILE \"${MADE}/ridge.1\" COMMAND_ERROR_IS_FATAL ANY)")
install(FILES ${MADE}/ridge.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${MADE}/ridge.bash RENAME ridge
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${MADE}/ridge.zsh RENAME _ridge DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
install(FILES ${MADE}/ridge.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE RENAME copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/ridge)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME ridge)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "The Ridge maintainers <ridge@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Measures, predicts, runs and explains language models")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)  # needs dpkg-dev and file
include(CPack)
