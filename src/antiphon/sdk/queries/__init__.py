"""One query layer for the command line, HTTP and programs: pages of everything, by cursor.

page        a page, and the cursor of the next one
job_query   which jobs are wanted, in people's words
namespace   `mesh.queries`
"""
