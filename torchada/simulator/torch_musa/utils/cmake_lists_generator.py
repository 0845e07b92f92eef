"""Writing a CMakeLists.txt for a plug-in; not simulated."""

from .._not_simulated import stand_ins

globals().update(
    stand_ins(
        __name__,
        "vendor porting tools",
        {
            "CMakeListsGenerator": {
                "__init__": "(self, sources, include_dirs, link_libraries, define_macros=None, "
                "project_name='DEMO_MUSA', plugin_name='demo_musa', customized_cmake_lists=None)",
                "fill_in_cmake_lists_template": "(self)",
                "generate": "(self)",
            }
        },
    )
)
